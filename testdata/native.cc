/* Calls malloc from every kind of native stack that a compiler, the C++ runtime or the C library makes: prints "ready" and goes
 * on in four threads until it is killed. For gdb to keep up with it pauses between two rounds. Linux with glibc. */
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <search.h>
#include <sstream>
#include <string>
#include <thread>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#define NOINLINE __attribute__((noinline))
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory")

static thread_local std::minstd_rand dice;

static int roll(int sides) { return dice() % sides; }
NOINLINE static void take(size_t n)
{
	void *p = malloc(n);
	KEEP(p);
	free(p);
}

/* Templates, tail calls, virtual calls. */
template <int N> struct Nest {
	NOINLINE static int go(int x)
	{
		int y = roll(N + 1) ? Nest<N - 1>::go(x + 1) : (take(N), x);
		KEEP(&y);
		return y + N;
	}
};
template <> struct Nest<0> {
	static int go(int x) { return take(x), x; }
};

NOINLINE static void tail_second(size_t n) { take(n + 1); }
NOINLINE static void tail_first(size_t n) { tail_second(n * 2); } /* a jump */

struct Left {
	virtual ~Left() { take(8); }
	virtual void work(int n) { tail_first(n); }
};
struct Right {
	virtual ~Right() { take(9); }
	virtual int other(int n) { return n; }
};
struct Both : Left, Right {
	std::string name = "longer than what a string holds in itself";
	void work(int n) override { Nest<12>::go(n), Left::work(n); }
	int other(int n) override { return take(n), n; } /* reached through a thunk */
};

NOINLINE static void virtuals(int n)
{
	std::unique_ptr<Left> left(new Both);
	std::unique_ptr<Right> right(new Both);
	left->work(n);
	KEEP(right->other(n));
}

/* Frames of a size known at run time only, large ones, realigned ones. */
NOINLINE static void large_frame(int n)
{
	volatile char space[100 << 10];
	space[n] = 1;
	take(space[n] + n);
}

NOINLINE static void realigned(int n)
{
	alignas(64) volatile char vector[64];
	vector[0] = 1;
	n % 2 ? take(vector[0] + n) : large_frame(n);
}

NOINLINE static void realigned_and_variable(int n)
{
	alignas(128) volatile char vector[128];
	char *space = static_cast<char *>(alloca(n * 16));
	vector[0] = space[0] = 1;
	KEEP(space);
	realigned(n + vector[0]);
	KEEP(space);
}

NOINLINE static void variable_array(int n)
{
	char space[n * 8];
	KEEP(space);
	n % 3 ? take(n) : realigned_and_variable(n);
	KEEP(space);
}

NOINLINE static int recurse(int levels, const std::function<void(int)> &leaf)
{
	if (levels == 0 || roll(100) == 0)
		leaf(levels);
	return levels ? recurse(levels - 1, leaf) + 1 : 0;
}

/* Exceptions: destructors that allocate while the stack unwinds, a call as the last instruction of a function. */
struct Guard {
	int n;
	~Guard() { variable_array(n); }
};

[[noreturn]] NOINLINE static void fail(int n)
{
	take(n);
	throw std::runtime_error("a text that is longer than what a string holds in itself");
}

NOINLINE static void throw_through(int levels)
{
	Guard guard{levels + 1};
	if (levels > 0)
		throw_through(levels - 1);
	fail(10);
}

NOINLINE static void exceptions(int n)
{
	try {
		try {
			throw_through(n);
		} catch (const std::exception &e) {
			take(strlen(e.what()));
			throw;
		}
	} catch (...) {
		virtuals(n);
	}
}

/* Callbacks of the C library. */
static int compare(const void *a, const void *b)
{
	if (roll(8) == 0)
		take(24);
	return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

NOINLINE static void callbacks(int n)
{
	int list[8] = {5, 3, 8, n, 7, 1, 4, 2};
	void *root = nullptr;
	qsort(list, 8, sizeof(list[0]), compare);
	KEEP(bsearch(&n, list, 8, sizeof(list[0]), compare));
	for (int &key : list)
		tsearch(&key, &root, compare);
	tdestroy(root, [](void *) { take(7); });
	static thread_local pthread_once_t once;
	once = PTHREAD_ONCE_INIT;
	pthread_once(&once, [] { variable_array(9); });
}

NOINLINE static void library(int n)
{
	std::vector<std::string> words;
	for (int i = 0; i < 6; i++) {
		std::ostringstream out;
		out << "word number " << (i * n) % 7 << " of some length" << 1.5 * i;
		words.push_back(out.str());
	}
	std::sort(words.begin(), words.end(), [](std::string a, std::string b) { return a < b; });
	std::map<std::string, std::shared_ptr<Both>> index;
	for (auto &word : words)
		index.emplace(word, std::make_shared<Both>());
	if (roll(8))
		return;
	std::smatch match;
	KEEP(std::regex_search(words[0], match, std::regex("(w[a-z]+) .*(of|at) (s.*)")));
}

/* Signals: raised, on the alternate stack, one in the other, and one that comes in the middle of a leaf function. */
static thread_local volatile sig_atomic_t may_allocate, fired;

static void on_signal(int number)
{
	fired = 1;
	if (number != SIGVTALRM || may_allocate)
		variable_array(number);
	if (number == SIGUSR1 && may_allocate)
		raise(SIGUSR2);
}

NOINLINE static unsigned spin(unsigned x)
{
	unsigned scratch[8] = {x, 1, 2, 3}; /* in the red zone */
	KEEP(scratch);
	while (!fired) {
		x = x * 1664525 + 1013904223;
		scratch[x % 8] += x;
	}
	return scratch[x % 8];
}

NOINLINE static void signals(int n)
{
	may_allocate = 1;
	raise(SIGUSR1);
	raise(SIGUSR2);
	pthread_kill(pthread_self(), SIGRTMIN + 3);
	fired = 0;
	timer_t timer;
	struct sigevent event = {{}, SIGVTALRM, SIGEV_THREAD_ID, {{}}};
	event._sigev_un._tid = gettid();
	timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
	struct itimerspec soon = {{0, 0}, {0, 100000}};
	timer_settime(timer, 0, &soon, nullptr);
	KEEP(spin(n));
	timer_delete(timer);
	may_allocate = 0;
}

static void prepare_signals()
{
	static thread_local char space[64 << 10];
	stack_t stack = {space, 0, sizeof(space)};
	sigaltstack(&stack, nullptr);
	struct sigaction action = {};
	action.sa_handler = on_signal;
	for (int number : {SIGUSR1, SIGVTALRM, SIGRTMIN + 3})
		sigaction(number, &action, nullptr);
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR2, &action, nullptr);
}

/* Stacks that the program makes itself. */
static thread_local ucontext_t outside, inside;

static void coroutine()
{
	for (int i = 0;; i++) {
		recurse(i % 5, [](int) { take(33); });
		swapcontext(&inside, &outside);
	}
}

NOINLINE static void contexts(int)
{
	static thread_local char space[64 << 10];
	if (!inside.uc_stack.ss_sp) {
		getcontext(&inside);
		inside.uc_stack.ss_sp = space;
		inside.uc_stack.ss_size = sizeof(space);
		makecontext(&inside, coroutine, 0);
	}
	swapcontext(&outside, &inside);
}

NOINLINE static void threads(int n)
{
	struct Last {
		~Last() { take(44); }
	};
	std::thread([n] {
		static thread_local Last last;
		KEEP(&last);
		exceptions(n % 3);
	}).join();
	KEEP(std::async(std::launch::async, [n] { return Nest<5>::go(n); }).get());
}

[[noreturn]] static void run_forever(unsigned seed)
{
	dice.seed(seed);
	prepare_signals();
	static void (*const all[])(int) = {virtuals, variable_array, exceptions, callbacks, library, signals, contexts};
	for (;;) {
		int n = 1 + roll(9);
		recurse(roll(12), [&](int) { all[roll(std::size(all))](n); });
		if (roll(20) == 0)
			recurse(200, [&](int) { variable_array(n); }), threads(n);
		usleep(200);
	}
}

int main()
{
	for (unsigned seed = 1; seed < 4; seed++)
		std::thread(run_forever, seed).detach();
	puts("ready");
	fflush(stdout);
	run_forever(4);
}
