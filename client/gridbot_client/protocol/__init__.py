"""The native protocol: messages, manifests, command templates and signatures; no I/O."""
