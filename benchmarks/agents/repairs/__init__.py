"""Repair tasks for assistants: trainings on a CPU with one planted fault, graded by `traceopt try`."""
