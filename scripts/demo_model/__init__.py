"""How the bundled demo model comes to be: its pictures, its questions, its network. See `docs/demo-model.md`."""
