//! The durable journal of what was changed, with sled as its index.
