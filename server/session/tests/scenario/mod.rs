//! The language of the scenarios, and what runs it.
//!
//! Commands, one a line; a line that begins with two spaces continues the one before:
//!
//! * `set TYPE NAME=CONTENT… [group=G] [ttl=5s] [alias=N,…] [refs=TYPE/NAME,…] [size=BYTES] [outside] [hosts] [dns]
//!   [routed]`,
//!   `remove TYPE NAME… [group=G]`, `group NAME [ids=GLOB,…] [agents=GLOB,…] [meta=PATH:TEXT] [priority=N] [client=grpc]
//!   [label=V]`, `ungroup NAME`: change what will be published. `outside`: no part of the wildcard.
//!   `dns`: the cluster resolves names. `routed`: a route configuration with a route to each cluster that it refers to, which are
//!   shown after its content. `hosts`: the name is a pattern of hosts; with a `*` in it, it is no part of the wildcard either.
//! * `publish [as for set]`: the same as `set` if there is anything behind it, then publishes.
//! * `connect STREAM sotw|delta [node=ID] [agent=NAME] [features=F,…] [meta=PATH:TEXT] [service=TYPE] [client=NAME]`: opens a
//!   stream. Streams of one client name are one client. Nonces are counted from 1 on every stream.
//! * `request [STREAM:] TYPE [NAME… | +NAME… -NAME…] [nonce=N|foreign|STREAM/N] [version=V] [error=TEXT] [node=ID]
//!   [irv=NAME@CONTENT,…]`: a request; without STREAM of the stream that was connected last. The node is sent with the first
//!   request of a stream, `node=` says otherwise (`node=none`). `TYPE` is a REST name, a type URL, or `none`.
//! * `pause STREAM`, `resume STREAM`: the stream has no room to send, and has it again. `poll STREAM`: room for one response.
//! * `time 2500ms`: lets time pass. `close STREAM`. `limits KEY=N… [addition=15s] [removal=60s] [settle=5s] [naive]`,
//!   before the first `connect`; `naive`: nothing waits.
//! * `status [STREAM]`: what the status board says. `acked STREAM TYPE REVISION`: whether everything up to that revision
//!   was accepted. `waiting [STREAM]`: what is not sent yet to the stream's client, and what it waits for. `held [STREAM]`: what the client may hold. `concerned STREAM TYPE`: whether the last publication concerns it.
//!
//! Output: `STREAM #NONCE TYPE VERSION: NAME@CONTENT… removed=… not_found=…`, with `wrapped` or `ttl` before the colon where the
//! form has it, and `ack` and `nack` as the status board hears of them. A version is `v1`, `v2`, … by first appearance within its
//! type, or the publisher's label. A content is followed by the name in it where that is not the resource's. `(silent)`: nothing happened.

mod server;
mod show;
mod words;

pub(crate) use server::Server;

/// How a scenario went.
pub(crate) enum Outcome {
    /// As written.
    AsExpected,
    /// Otherwise.
    Different {
        /// The whole file as it should be if what happened is right.
        actual: String,
        /// The first block that went otherwise.
        difference: String,
    },
    /// It cannot be run.
    Malformed(String),
}

/// Runs one scenario.
pub(crate) fn run(text: &str) -> Outcome {
    if !text.starts_with("# ") {
        return Outcome::Malformed("a scenario begins with its claim, in a comment".into());
    }
    let mut server = Server::new();
    let mut blocks = Vec::new();
    let mut difference = None;
    for block in text.split("\n\n").map(|block| block.trim_matches('\n')).filter(|block| !block.is_empty()) {
        let Some((commands, expected)) = split(block) else {
            blocks.push(block.to_owned());
            continue;
        };
        let mut output = Vec::new();
        for command in joined(commands) {
            if let Err(reason) = server.run(&command, &mut output) {
                return Outcome::Malformed(format!("{command:?}: {reason}"));
            }
        }
        if output.is_empty() {
            output.push("(silent)".to_owned());
        }
        let output = output.join("\n");
        if output != expected && difference.is_none() {
            difference = Some(format!("after\n{commands}\nexpected\n{expected}\nbut got\n{output}"));
        }
        blocks.push(format!("{commands}\n----\n{output}"));
    }
    let Some(difference) = difference else { return Outcome::AsExpected };
    Outcome::Different { actual: blocks.join("\n\n") + "\n", difference }
}

/// The commands of a block and what is expected; `None` for a block of comments.
fn split(block: &str) -> Option<(&str, &str)> {
    match block.split_once("\n----") {
        Some((commands, expected)) => Some((commands, expected.trim_matches('\n'))),
        None if block.lines().all(|line| line.starts_with('#')) => None,
        None => Some((block, "")),
    }
}

/// The commands without comments, continuation lines joined.
fn joined(commands: &str) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for line in commands.lines().filter(|line| !line.starts_with('#')) {
        match joined.last_mut() {
            Some(last) if line.starts_with("  ") => last.push_str(&line[1..]),
            Some(_) | None => joined.push(line.to_owned()),
        }
    }
    joined
}
