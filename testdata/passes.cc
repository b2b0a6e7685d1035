/* A library with functions that a training program may call once a step. Which of them a name means is the question. */

static volatile long calls;

#define PASS __attribute__((noinline, visibility("default")))

extern "C" {
PASS void training_step()
{
	calls = calls + 1;
}

PASS void training_stop()
{
	calls = calls - 1;
}

/* One function by two names. */
PASS void optimizer_step()
{
	calls = calls + 2;
}

PASS void optimizer_step_alias() __attribute__((alias("optimizer_step")));

/* Not exported: in .symtab alone. */
static PASS __attribute__((used)) void hidden_step()
{
	calls = calls + 3;
}
}

namespace trainer {
struct Engine {
	static PASS void execute(int times)
	{
		calls = calls + times;
	}
	static PASS void execute_slowly(int times)
	{
		calls = calls - times;
	}
	static PASS void evaluate(int times)
	{
		calls = calls + 2 * times;
	}
	static PASS void evaluate(long times)
	{
		calls = calls + 3 * times;
	}
};
} // namespace trainer

void use_all()
{
	trainer::Engine::execute(1);
	trainer::Engine::execute_slowly(1);
	trainer::Engine::evaluate(1);
	trainer::Engine::evaluate(1L);
	hidden_step();
}
