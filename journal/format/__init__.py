"""Records, blocks, containers and marks as bytes: tables of offsets, pure encoders and decoders."""
