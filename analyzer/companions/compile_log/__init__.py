"""torch.compile's structured log (`TORCH_TRACE=folder`): graph breaks, recompilations, phases, CUDA graphs."""
