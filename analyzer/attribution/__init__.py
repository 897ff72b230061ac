"""Where the time of a step goes: the cause of every idle gap, the phases of a CPU-only step, host syncs."""
