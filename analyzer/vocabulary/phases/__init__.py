"""Phases of steps and runs by their names: rollout and reward, prefill and decode, the parts of a start-up."""
