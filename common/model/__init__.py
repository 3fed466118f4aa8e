"""The model: shapes, stages, layout of every buffer, checkpoints and packed weights."""
