"""Where units of a sweep and of a verdict run: this machine's processes, jobs of a scheduler, Ray; needs no torch."""
