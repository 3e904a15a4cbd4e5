//! Calls of etcd: one member at a time, and the next one when it fails.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::messages::{
    AuthenticateRequest, AuthenticateResponse, CompactionRequest, CompactionResponse, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest, LeaseRevokeResponse, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use super::settings::{EtcdOptions, EtcdUrl};
use crate::remote::RemoteError;

/// A client of one etcd.
#[derive(Debug)]
pub(super) struct Client {
    url: EtcdUrl,
    options: EtcdOptions,
    current: Mutex<Current>,
}

/// The member that is used, and the connection with it.
#[derive(Debug, Default)]
struct Current {
    index: usize,
    session: Option<Session>,
}

/// A connection, and the token of the user.
#[derive(Clone)]
struct Session {
    member: usize,
    channel: Channel,
    token: Option<String>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session with member {}", self.member)
    }
}

impl Client {
    pub(super) fn new(url: EtcdUrl, options: EtcdOptions) -> Self {
        Self { url, options, current: Mutex::default() }
    }

    /// Makes a transaction at the current member. A member that fails is not used for the next one.
    pub(super) async fn transact(&self, request: TxnRequest) -> Result<TxnResponse, RemoteError> {
        let timeout = match request.encoded_len() {
            ..=SHORT_BYTES => SHORT_CALL,
            _ => LONG_CALL,
        };
        self.ask(timeout, |session| call(session, TXN, request.clone())).await
    }

    pub(super) async fn grant(&self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, RemoteError> {
        self.ask(SHORT_CALL, |session| call(session, GRANT, request.clone())).await
    }

    /// Prolongs a lease once. `false` if it has ended.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<bool, RemoteError> {
        let prolong = |session: Session| async move {
            let mut grpc = grpc(&session);
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let request = futures_util::stream::once(std::future::ready(LeaseRequest { id }));
            let request = with_metadata(Request::new(request), &session)?;
            let codec: ProstCodec<LeaseRequest, LeaseKeepAliveResponse> = ProstCodec::default();
            let answers = grpc.streaming(request, PathAndQuery::from_static(KEEP_ALIVE), codec).await?;
            let answer = answers.into_inner().message().await?;
            answer.ok_or_else(|| Status::unavailable("it ended the stream"))
        };
        Ok(self.ask(SHORT_CALL, prolong).await?.ttl > 0)
    }

    /// Ends a lease. One that has ended already is as good.
    pub(super) async fn revoke(&self, id: i64) -> Result<(), RemoteError> {
        let revoke = |session| async move {
            match call(session, REVOKE, LeaseRequest { id }).await {
                Err(status) if status.code() == Code::NotFound => Ok(LeaseRevokeResponse {}),
                answer => answer,
            }
        };
        self.ask(SHORT_CALL, revoke).await.map(drop)
    }

    /// Drops the old values of all keys. Those that were dropped before are as good.
    pub(super) async fn compact(&self) -> Result<(), RemoteError> {
        let answer = self.transact(TxnRequest::default()).await?;
        let revision = answer.header.unwrap_or_default().revision;
        let compact = |session| async move {
            let request = CompactionRequest { revision, physical: true };
            match call(session, COMPACT, request).await {
                Err(status) if status.code() == Code::OutOfRange => Ok(CompactionResponse {}),
                answer => answer,
            }
        };
        self.ask(COMPACTION, compact).await.map(drop)
    }

    /// Makes a call at the current member, and again if the token is too old for it.
    async fn ask<T, F: Future<Output = Result<T, Status>>>(
        &self,
        timeout: Duration,
        call: impl Fn(Session) -> F,
    ) -> Result<T, RemoteError> {
        for is_last in [false, true] {
            let session = self.session().await?;
            let called = tokio::time::timeout(timeout, call(session.clone())).await;
            let status = match called {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(status)) => status,
                Err(_) => {
                    self.leave(&session);
                    let seconds = timeout.as_secs();
                    let member = self.member(session.member);
                    return Err(RemoteError::Silent(format!("{member} did not answer within {seconds} s")));
                }
            };
            // The request was refused before anything was done.
            let is_old_token = is_of_token(&status);
            if is_old_token {
                self.forget(&session);
            }
            if !is_old_token || is_last {
                return Err(self.error(&session, &status));
            }
        }
        Err(RemoteError::Refused("the token is refused".to_owned()))
    }

    /// Watches a key, and calls `news` at each message, until it ends.
    pub(super) async fn watch(&self, key: Bytes, news: impl Fn() + Send) -> Result<(), RemoteError> {
        let session = self.session().await?;
        let create = WatchRequest { create: Some(WatchCreateRequest { key }) };
        // The stream stays open as long as nothing ends the requests.
        let requests = futures_util::StreamExt::chain(
            futures_util::stream::once(std::future::ready(create)),
            futures_util::stream::pending(),
        );
        let mut grpc = grpc(&session);
        let codec: ProstCodec<WatchRequest, WatchResponse> = ProstCodec::default();
        let watched = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let request = with_metadata(Request::new(requests), &session)?;
            let mut messages =
                grpc.streaming(request, PathAndQuery::from_static(WATCH), codec).await?.into_inner();
            while let Some(message) = messages.message().await? {
                if message.canceled {
                    break;
                }
                news();
            }
            Ok::<(), Status>(())
        };
        watched.await.map_err(|status| {
            if is_of_token(&status) {
                self.forget(&session);
            }
            self.error(&session, &status)
        })
    }

    /// A connection with the current member, or with the first one after it that takes one.
    async fn session(&self) -> Result<Session, RemoteError> {
        let first = {
            let current = self.current();
            if let Some(session) = &current.session {
                return Ok(session.clone());
            }
            current.index
        };
        let mut errors = Vec::new();
        for step in 0..self.url.members.len() {
            let index = (first + step) % self.url.members.len();
            match self.connect(index).await {
                Ok(session) => {
                    *self.current() = Current { index, session: Some(session.clone()) };
                    return Ok(session);
                }
                Err(RemoteError::Refused(reason)) => return Err(RemoteError::Refused(reason)),
                Err(error) => errors.push(error.to_string()),
            }
        }
        Err(RemoteError::Unreachable(errors.join("; ")))
    }

    async fn connect(&self, index: usize) -> Result<Session, RemoteError> {
        let member = self.member(index);
        let unreachable = |reason: String| RemoteError::Unreachable(format!("{member}: {reason}"));
        let scheme = if self.url.is_tls { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{member}"));
        let mut endpoint = endpoint
            .map_err(|error| unreachable(chain(&error)))?
            .connect_timeout(SHORT_CALL)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE / 2)
            .keep_alive_while_idle(false);
        if self.url.is_tls {
            let tls = self.tls().await.map_err(RemoteError::Refused)?;
            endpoint = endpoint.tls_config(tls).map_err(|error| unreachable(chain(&error)))?;
        }
        let connected = tokio::time::timeout(SHORT_CALL, endpoint.connect()).await;
        let channel = connected
            .map_err(|_| unreachable("no connection within 2 s".to_owned()))?
            .map_err(|error| unreachable(chain(&error)))?;
        let mut session = Session { member: index, channel, token: None };
        if let Some((user, password_file)) = &self.options.user {
            let password = tokio::fs::read_to_string(password_file).await;
            let password = password.map_err(|error| {
                RemoteError::Refused(format!("{} cannot be read: {error}", password_file.display()))
            })?;
            let request = AuthenticateRequest {
                name: user.clone(),
                password: password.trim_end_matches(['\r', '\n']).to_owned(),
            };
            let answer = tokio::time::timeout(
                SHORT_CALL,
                call::<_, AuthenticateResponse>(session.clone(), LOGIN, request),
            );
            let answer = answer.await.map_err(|_| unreachable("no answer within 2 s".to_owned()))?;
            let answer = answer.map_err(|status| match self.error(&session, &status) {
                RemoteError::Silent(reason) => RemoteError::Unreachable(reason),
                RemoteError::Unreachable(_)
                | RemoteError::Full(_)
                | RemoteError::TooLarge(_)
                | RemoteError::Refused(_) => {
                    RemoteError::Refused(format!("user {user:?}: {}", text(&status)))
                }
            })?;
            session.token = Some(answer.token);
        }
        Ok(session)
    }

    async fn tls(&self) -> Result<ClientTlsConfig, String> {
        let read = async |path: &std::path::Path| {
            tokio::fs::read(path).await.map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &self.options.ca {
            tls = tls.ca_certificate(Certificate::from_pem(read(ca).await?));
        }
        if let Some((certificate, key)) = &self.options.identity {
            tls = tls.identity(Identity::from_pem(read(certificate).await?, read(key).await?));
        }
        Ok(tls)
    }

    /// Uses another member from now on.
    fn leave(&self, session: &Session) {
        let mut current = self.current();
        if current.session.as_ref().is_some_and(|current| current.member == session.member) {
            *current = Current { index: (session.member + 1) % self.url.members.len(), session: None };
        }
    }

    /// Uses the same member with another token.
    fn forget(&self, session: &Session) {
        let mut current = self.current();
        if current.session.as_ref().is_some_and(|current| current.token == session.token) {
            current.session = None;
        }
    }

    /// What a refusal means. What may have been done all the same is silent, and the member is left.
    fn error(&self, session: &Session, status: &Status) -> RemoteError {
        let reason = format!("{}: {}", self.member(session.member), text(status));
        match status.code() {
            Code::ResourceExhausted if status.message().contains("space exceeded") => {
                RemoteError::Full(reason)
            }
            Code::ResourceExhausted => RemoteError::TooLarge(reason),
            Code::InvalidArgument
                if ["too large", "too many"].iter().any(|text| status.message().contains(text)) =>
            {
                RemoteError::TooLarge(reason)
            }
            Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument => {
                RemoteError::Refused(reason)
            }
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => {
                self.leave(session);
                RemoteError::Silent(reason)
            }
        }
    }

    fn member(&self, index: usize) -> &str {
        self.url.members.get(index).map_or("", String::as_str)
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn call<I, O>(session: Session, path: &'static str, message: I) -> Result<O, Status>
where
    I: Message + Send + Sync + 'static,
    O: Message + Default + Send + Sync + 'static,
{
    let mut grpc = grpc(&session);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = with_metadata(Request::new(message), &session)?;
    let codec: ProstCodec<I, O> = ProstCodec::default();
    Ok(grpc.unary(request, PathAndQuery::from_static(path), codec).await?.into_inner())
}

fn grpc(session: &Session) -> Grpc<Channel> {
    Grpc::new(session.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
}

/// A member without a leader is to refuse; without this it is silent.
fn with_metadata<T>(mut request: Request<T>, session: &Session) -> Result<Request<T>, Status> {
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = &session.token {
        let token = token.parse().map_err(|_| Status::unauthenticated("the token is not one"))?;
        request.metadata_mut().insert("token", token);
    }
    Ok(request)
}

/// Returns `true` if the token is no longer accepted, but another one may be.
fn is_of_token(status: &Status) -> bool {
    let texts = ["invalid auth token", "revision of auth store is old", "revision in header is old"];
    texts.iter().any(|text| status.message().contains(text))
}

fn text(status: &Status) -> String {
    format!("{} ({:?})", status.message(), status.code())
}

fn chain(error: &dyn std::error::Error) -> String {
    crate::follow::chain(error)
}

const TXN: &str = "/etcdserverpb.KV/Txn";
const COMPACT: &str = "/etcdserverpb.KV/Compact";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const LOGIN: &str = "/etcdserverpb.Auth/Authenticate";

/// How long a member may take; one that is stopped is found out by this.
const SHORT_CALL: Duration = Duration::from_secs(2);

/// The same for what takes longer to send.
const LONG_CALL: Duration = Duration::from_secs(6);

/// The same for dropping old values, which may be gigabytes.
const COMPACTION: Duration = Duration::from_secs(60);

/// Requests up to this size are short calls.
const SHORT_BYTES: usize = 64 * 1024;

/// etcd takes pings that come faster than every five seconds for an attack.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A page of 32 commits, or four parts of a body.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
