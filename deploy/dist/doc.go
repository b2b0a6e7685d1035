// Command dist makes the files of a release: archives, packages, wheels, an image, the list of
// their parts, and their checksums. `make dist` runs it. It needs git's version and commit, a C
// compiler for each architecture, and the npm packages of export/page/web.
//
// Its files depend on the commit, the version of Go and the C compilers alone: all times are the
// commit's. reproduce builds them twice and compares.
package main
