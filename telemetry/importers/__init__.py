"""Files of the field to rows of the store, one file per format; `registry` lists them."""
