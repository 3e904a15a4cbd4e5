//! The versioned snapshot cache: resources, node groups, views, the publisher and the status board.
