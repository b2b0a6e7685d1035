// Package fleet tests the agent and what it talks to with the real parts: Pyroscope, Prometheus,
// Slurm, a container engine, and the API types of Kubernetes. `make test-fleet` runs it.
package fleet
