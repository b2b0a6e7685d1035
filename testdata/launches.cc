// The part in C++ of launches.py: blocks of caching.cc, handed out and taken back from a stack of
// so
// many frames, each with as much work of the processor as a launch of a kernel takes.
#include <cstddef>
#include <cstdint>

extern "C" void *block_malloc(size_t size);
extern "C" void block_free(void *block);

#define NOINLINE __attribute__((noinline))
#define KEEP(value) __asm__ volatile("" : : "r"(value) : "memory")

#define SCALARS 512, 512, 512, 512, 512

// Bytes of the blocks: half of them are scalars, and their mean is 0.8 MiB.
static const size_t sizes[] = { SCALARS,   SCALARS,   256 << 10, 256 << 10, 256 << 10, 256 << 10,
				256 << 10, 256 << 10, 2 << 20,   2 << 20,   2 << 20,   8 << 20 };
static const unsigned kinds = sizeof(sizes) / sizeof(sizes[0]);

static const unsigned tensors = 256; // that are alive at a time
static void *alive[tensors];
static unsigned next;

// Other data than the probe's fills the first cache meanwhile, as in a real program.
static uint64_t data[1 << 15];

static NOINLINE void work(unsigned rounds)
{
	uint64_t state = 1;

	for (unsigned i = 0; i < rounds; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		data[state >> 49] += state;
	}
}

static NOINLINE void launch(unsigned rounds)
{
	void *&tensor = alive[next % tensors];

	if (tensor)
		block_free(tensor);
	tensor = block_malloc(sizes[next++ * 7 % kinds]);
	work(rounds);
}

static NOINLINE void call(unsigned depth, unsigned rounds)
{
	if (depth)
		call(depth - 1, rounds);
	else
		launch(rounds);
	KEEP(depth);
}

// Hands out so many blocks, each from `depth` calls deep and with so many rounds of work.
extern "C" void launch_blocks(unsigned blocks, unsigned depth, unsigned rounds)
{
	while (blocks--)
		call(depth, rounds);
}
