// Drives caching.cc by orders, one a line, each of which it answers with "done":
//
//	malloc NAME GPU STREAM BYTES   allocates a block, whose name is a number
//	free NAME                      frees it
//	used NAME                      frees it while a stream still uses it
//	events                         the streams are done
//	empty                          empties the cache
//	begin GPU FIRST SECOND         blocks are from the private pool of that number
//	end GPU                        no longer
//	release GPU FIRST SECOND       the graph of the pool is gone
//	expandable 0|1                 new segments are expandable, or not
//	fail N                         the next N calls of the driver fail
//	fill N BYTES                   allocates N blocks and keeps every other one
//	churn SEED                     allocates and frees at full speed in another thread
//	stop                           ends that
//	list                           prints the segments and blocks, as block_list() does
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

extern "C" {
void *block_malloc_on(int gpu, size_t size, uint64_t stream);
void block_free(void *block);
void block_free_used(void *block);
void block_process_events();
void block_empty_cache();
void block_begin_pool(int gpu, uint64_t first, uint64_t second);
void block_end_pool(int gpu);
void block_release_pool(int gpu, uint64_t first, uint64_t second);
void block_expandable_segments(int on);
void block_list(FILE *to);
void stub_fail_next(int n);
}

static std::map<unsigned long, void *> blocks;
static std::atomic<bool> churns;
static std::thread thread;

static void *take(unsigned long name)
{
	void *block = blocks[name];
	blocks.erase(name);
	return block;
}

static void fill(unsigned long n, unsigned long bytes)
{
	std::vector<void *> all;

	while (all.size() < n)
		all.push_back(block_malloc_on(0, bytes, 0));
	for (unsigned long i = 0; i < n; i += 2)
		block_free(all[i]);
}

static void churn(unsigned long seed)
{
	std::mt19937 random(seed);
	std::vector<void *> own(200);

	while (churns) {
		void *&block = own[random() % own.size()];
		if (block)
			block_free(block);
		block = block_malloc_on(0, random() % 4 ? random() % 100000 : random() % 8000000, 0);
		if (random() % 5000 == 0)
			block_empty_cache();
	}
	for (void *block : own)
		if (block)
			block_free(block);
}

static void execute(const char *order, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
	auto is = [order](const char *name) { return !strcmp(order, name); };

	if (is("malloc")) {
		void *block = block_malloc_on(b, d, c);
		if (block)
			blocks[a] = block;
		printf("%d\n", block != nullptr);
	} else if (is("free")) {
		block_free(take(a));
	} else if (is("used")) {
		block_free_used(take(a));
	} else if (is("events")) {
		block_process_events();
	} else if (is("empty")) {
		block_empty_cache();
	} else if (is("begin")) {
		block_begin_pool(a, b, c);
	} else if (is("end")) {
		block_end_pool(a);
	} else if (is("release")) {
		block_release_pool(a, b, c);
	} else if (is("expandable")) {
		block_expandable_segments(a);
	} else if (is("fail")) {
		stub_fail_next(a);
	} else if (is("fill")) {
		fill(a, b);
	} else if (is("churn")) {
		churns = true;
		thread = std::thread(churn, a);
	} else if (is("stop")) {
		churns = false;
		thread.join();
	} else if (is("list")) {
		block_list(stdout);
	} else {
		printf("no order: %s\n", order);
	}
}

int main()
{
	char line[200], order[sizeof(line)];

	while (fgets(line, sizeof(line), stdin)) {
		unsigned long a = 0, b = 0, c = 0, d = 0;

		sscanf(line, "%s %lu %lu %lu %lu", order, &a, &b, &c, &d);
		execute(order, a, b, c, d);
		puts("done");
		fflush(stdout);
	}
	churns = false;
	if (thread.joinable())
		thread.join();
	return 0;
}
