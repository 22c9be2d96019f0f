"""The protocols of ``configs.protocols``, one file for those that share their way; each returns what it judged."""
