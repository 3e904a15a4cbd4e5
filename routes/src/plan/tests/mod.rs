//! Plans of documents that are made by hand.
