"""From files to batches of images on the device."""
