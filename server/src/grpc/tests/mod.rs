//! Tests of the services as a whole: over real connections, and of a stream's body without any.

mod age;
mod body;
mod connections;
mod credentials;
mod csds;
mod currency;
mod discovery;
mod identities;
mod limits;
mod loads;
mod measure;
mod rest;
mod shutdown;
mod silence;
mod support;
