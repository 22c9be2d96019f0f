"""One page that shows what a network makes of images: a map, clusters, neighbours, outliers, copies."""
