// A server that forgets the record of each request. A leak of 1 MiB a second.
#include <cstdio>
#include <cstring>
#include <string>
#include <unistd.h>

struct Request {
	char header[2000];
	int number;
};

__attribute__((noinline)) static int handle(int number)
{
	Request *request = new Request; // NAMED

	asm volatile("" : "+r"(request)); // else the compiler leaves new out
	memset(request->header, number, sizeof(request->header));
	request->number = number;
	return request->header[number % 2000];
}

int main()
{
	printf("ready %d\n", getpid());
	fflush(stdout);

	int sum = 0;
	for (int number = 0;; number++) {
		sum += handle(number);
		std::string answer(5000 + number % 100, 'x');
		sum += answer.back();
		if (number % 26 == 0)
			usleep(50000);
	}
	return sum;
}
