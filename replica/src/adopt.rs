//! The remote is right: every server takes the state that it has, whatever its own history says.

use std::collections::BTreeMap;

use xds_store::Revision;

use crate::chain::{ChainHash, Head};
use crate::draft::put_parts;
use crate::end;
use crate::follow::{Look, Trouble};
use crate::layout::{self, BASE, Base, HEAD, MAX_PARTS, META, Parts};
use crate::members::{MAX_MEMBERS, REPLICA};
use crate::position::Position;
use crate::remote::{Compare, Put, Read, Remote, RemoteError, Transaction, Written};
use crate::seal::StoreKeys;
use crate::state::{read_state, seal_base};

/// What an adoption did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Adopted {
    /// The revision at which the state was there.
    pub was: Revision,
    /// The revision that it has now. It is the newest and the oldest one.
    pub revision: Revision,
    /// Up to where the servers had other histories, by their ids.
    pub ends: BTreeMap<String, Revision>,
    /// The other servers with the same store: they followed it already, or were stopped.
    pub others: Vec<String>,
}

/// The state of the remote was not adopted. The remote is as it was, unless it did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// There is no history.
    #[error("the shared store is empty; `store push` fills it")]
    Empty,
    /// No server has another history.
    #[error(
        "no server has another history than the shared store; if one is stopped that has, --above says the revision up to which"
    )]
    Nothing,
    /// A revision is too large to be one.
    #[error("revision {0} is more than the limit of {MAX_REVISION}")]
    TooLate(Revision),
    /// The state needs more parts than a state may have.
    #[error("the state has more than {MAX_PARTS} MiB")]
    TooLarge,
    /// The remote was changed at the same time.
    #[error("the shared store was changed meanwhile; try again")]
    Changed,
    /// Something there cannot be read.
    #[error("the shared store cannot be read: {0}")]
    Unreadable(String),
    /// The remote could not be read or written.
    #[error("the shared store failed: {0}")]
    Remote(#[from] RemoteError),
}

impl From<Trouble> for AdoptError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Remote(error) => Self::Remote(error),
            Trouble::Moved => Self::Changed,
            trouble @ (Trouble::Diverged(_)
            | Trouble::Unreadable(_)
            | Trouble::Mirror(_)
            | Trouble::Position(_)
            | Trouble::Claimed(_)) => Self::Unreadable(trouble.to_string()),
        }
    }
}

/// Makes the state that `remote` has its next revision, with a higher epoch: all servers that run follow it.
///
/// The revision is after all that servers have given out, as far as these say so, and after `above`. So no server goes back. The history
/// before is dropped, because the servers do not have the same one.
///
/// # Errors
///
/// [`AdoptError`]. If the remote does not answer, it may have been adopted: another call then says that there is nothing to do.
pub async fn adopt(
    remote: &dyn Remote,
    keys: &StoreKeys,
    above: Option<Revision>,
) -> Result<Adopted, AdoptError> {
    let look = Look::at(remote).await?;
    let (Some(meta), Some(head)) = (&look.meta, look.head) else { return Err(AdoptError::Empty) };
    let company = Company::read(remote).await?;
    let ends = company.ends.iter().filter(|(_, position)| position.store == meta.store);
    let ends: BTreeMap<_, _> = ends.map(|(id, position)| (id.clone(), position.head)).collect();
    if ends.is_empty() && above.is_none() {
        return Err(AdoptError::Nothing);
    }
    let last = ends.values().map(|end| end.revision).chain(above).chain([head.revision]).max();
    let last = last.unwrap_or_default();
    let epoch = ends.values().map(|end| end.epoch).chain([head.epoch]).max().unwrap_or_default();
    let next_epoch = epoch.checked_add(1);
    let epoch = next_epoch.ok_or_else(|| AdoptError::Unreadable("its epoch is the last one".to_owned()))?;
    if last.0 >= MAX_REVISION {
        return Err(AdoptError::TooLate(last));
    }
    let no_key = || AdoptError::Unreadable("no key of --store-key-file opens it".to_owned());
    let (sealer, _) = keys.open(&meta.store, &meta.key).ok_or_else(no_key)?;

    let store = (meta.store.as_str(), look.base.as_ref());
    let (body, chain) = read_state(remote, &sealer, store, head.revision).await?;
    if chain != head.chain {
        return Err(AdoptError::Unreadable("its head is not the hash of its commits".to_owned()));
    }
    let revision = last.next();
    let (packs, puts) = seal_base(&sealer, &meta.store, revision, &body).ok_or(AdoptError::TooLarge)?;
    put_parts(remote, &puts).await?;
    let base = Base { revision, chain: ChainHash::of_beginning(&meta.store, revision), packs };
    let next = Head { epoch, revision, chain: base.chain };
    begin_at(remote, &look, &base, next).await?;
    let ends: BTreeMap<_, _> = ends.into_iter().map(|(id, end)| (id, end.revision)).collect();
    let others = company.ids.into_iter().filter(|id| !ends.contains_key(id)).collect();
    Ok(Adopted { was: head.revision, revision, ends, others })
}

/// Makes `base` the whole history, if nothing has changed since `look`.
async fn begin_at(remote: &dyn Remote, look: &Look, base: &Base, head: Head) -> Result<(), AdoptError> {
    let compares = look.values.iter().zip([META, HEAD, BASE]).map(|(value, key)| match value {
        Some(value) => Compare::Value(key.to_owned(), value.clone()),
        None => Compare::Absent(key.to_owned()),
    });
    let json = serde_json::to_vec(base).map_err(|error| AdoptError::Unreadable(error.to_string()))?;
    let transaction = Transaction {
        compares: compares.collect(),
        puts: vec![
            Put { key: HEAD.to_owned(), value: head.encode() },
            Put { key: BASE.to_owned(), value: json.into() },
        ],
        deletes: vec![
            layout::commits_before(Revision(u64::MAX)),
            Parts::Commit.before(Revision(u64::MAX)),
            Parts::Base.before(base.revision),
            end::all(),
        ],
        otherwise: vec![HEAD.to_owned()],
        ..Transaction::default()
    };
    let mut tries_left = TRIES;
    loop {
        tries_left -= 1;
        match remote.write(transaction.clone()).await {
            Ok(Written::Done) => return Ok(()),
            // An earlier try was not answered.
            Ok(Written::Failed(found)) if found.first() == Some(&Some(head.encode())) => return Ok(()),
            Ok(Written::Failed(_)) => return Err(AdoptError::Changed),
            Err(RemoteError::Silent(_) | RemoteError::Unreachable(_)) if tries_left > 0 => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The servers that the remote knows.
struct Company {
    ends: BTreeMap<String, Position>,
    ids: Vec<String>,
}

impl Company {
    async fn read(remote: &dyn Remote) -> Result<Self, RemoteError> {
        let replicas =
            Read { from: REPLICA.to_owned(), to: Some(REPLICA.replace('/', "0")), limit: MAX_MEMBERS };
        let found = remote.read(vec![end::read(), replicas]).await?;
        let [ends, replicas] = found.as_slice() else {
            return Err(RemoteError::Silent("the answer has other ranges than the question".to_owned()));
        };
        let ids = replicas.iter().filter_map(|entry| entry.key.strip_prefix(REPLICA).map(str::to_owned));
        Ok(Self { ends: end::parse(ends), ids: ids.collect() })
    }
}

/// Revisions are numbers in JSON, which many programs read as doubles.
const MAX_REVISION: u64 = 1 << 53;

/// How often the last step is tried while no answer comes. Each try goes to another member.
const TRIES: usize = 5;
