"""Looks at images before anything is trained on them: what they are, what follows, what it takes."""
