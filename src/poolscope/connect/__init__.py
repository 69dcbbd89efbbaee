"""The room that meets other programs: vector stores, clusters, trainers and evaluators, assistants."""
