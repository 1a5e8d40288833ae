"""What a model writes: samplers, beams, drafts, the compiled pass, compressed files."""
