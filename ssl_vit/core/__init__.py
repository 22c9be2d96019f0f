"""What everything stands on: errors, processes, random numbers, schedules, files."""
