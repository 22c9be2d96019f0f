"""Does pre-training pay on these images? Plans, makes and keeps every number that the report stands on."""
