//! Bad input, by name: each kind gets its message, the last good state keeps serving, nothing is lost, the process lives.

mod clients;
mod data_dir;
mod files;
mod forms;
mod http;
mod messages;
mod secrets;
mod typos;
mod verdicts;
