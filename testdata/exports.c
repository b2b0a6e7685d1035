/* A library that exports a function of an interpreter: NAME. */
int NAME(void)
{
	return 0;
}
