"""Programs that train no network, a file a family; `overheard.programs.program` finds them."""
