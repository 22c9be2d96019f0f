"""Where images and labels come from: folders, tables, shards, streams, the hub."""
