// Package fleet tests the agent with the real parts around it: Pyroscope, Prometheus, Slurm, a
// container engine, and the API types of Kubernetes. `make test-fleet` runs it.
package fleet
