"""AG-UI 1.0: one more way to ask, to watch and to answer (docs/agui.md)."""
