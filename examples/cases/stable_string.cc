// An operator behind a C interface: its argument of text arrives in a box that the callee empties.
// unbox_leaking is the mechanism of pytorch#191340, in code of ours.

#include <string>

using Box = std::string *;

static Box box(const char *text)
{
	return new std::string(text);
}

// The copy has 32 bytes, for which glibc takes 48. Its address is lost at the return.
static std::string unbox_leaking(Box box)
{
	auto *copy = new std::string(*box);
	delete box;
	return *copy;
}

static std::string unbox(Box box)
{
	std::string copy(*box);
	delete box;
	return copy;
}

extern "C" int store_page(const char *dtype, bool fixed)
{
	std::string name = fixed ? unbox(box(dtype)) : unbox_leaking(box(dtype));
	return name == "auto" ? 16 : 8;
}
