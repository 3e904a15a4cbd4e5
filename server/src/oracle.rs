//! An Envoy that is asked while the server serves (`--oracle`).
//!
//! It is in nobody's way: one question at a time, within the time of the change that asks. If it does not answer at all, it is left alone for a
//! while. Its answers are remembered by the versions of resources.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use xds_cache::{Resource, ResourceKey, Version};
use xds_control::Judgement;
use xds_oracle::{Bounds, Candidate, Crash, Envoy, MAX_VERSION, Oracle, Refusal, Verdict};

use crate::metrics::Metrics;

/// The Envoy of a server.
pub(crate) struct Serving {
    path: PathBuf,
    /// Where the directory of its questions is made. Only this user can read it.
    parent: PathBuf,
    /// The program; `None` while it is asked.
    turn: Mutex<Option<Program>>,
    is_free: Condvar,
    remembered: Mutex<Memory>,
    metrics: Arc<Metrics>,
}

/// The program as it is known.
#[derive(Debug, Default)]
struct Program {
    oracle: Option<Oracle>,
    /// When its file was written. Another file is another Envoy.
    written_at: Option<SystemTime>,
    /// Until when it is not asked, and why.
    paused: Option<(Instant, String)>,
}

/// The answers, the oldest first.
#[derive(Debug, Default)]
struct Memory {
    /// Whose answers they are.
    judge: String,
    answers: HashMap<Asked, Answer>,
    order: VecDeque<Asked>,
}

type Asked = (ResourceKey, Version);

#[derive(Clone, Debug)]
enum Answer {
    Taken,
    /// Why not, and when it said so. The reason may be a file of this machine, so this is asked again after a while.
    Refused(String, Instant),
}

impl Serving {
    /// Questions are kept in a directory of `parent`, which is emptied. The program is looked for when it is first asked.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made.
    pub(crate) fn open(path: &Path, parent: &Path, metrics: Arc<Metrics>) -> io::Result<Self> {
        // A process that was killed may have left a question, with secrets.
        match fs::remove_dir_all(parent) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::DirBuilder::new().mode(0o700).create(parent)?;
        Ok(Self {
            path: path.to_owned(),
            parent: parent.to_owned(),
            turn: Mutex::new(Some(Program::default())),
            is_free: Condvar::new(),
            remembered: Mutex::default(),
            metrics,
        })
    }

    fn remembered(&self) -> MutexGuard<'_, Memory> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program, when nobody else asks it.
    fn turn(&self, until: Instant) -> Option<Turn<'_>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.is_free.wait_timeout_while(turn, left, |program| program.is_none());
        let (mut turn, _) = waited.unwrap_or_else(PoisonError::into_inner);
        turn.take().map(|program| Turn { serving: self, program })
    }

    /// Asks about what is not remembered of the lists.
    fn ask(&self, lists: &[Vec<Arc<Resource>>], until: Instant, said: &mut Judgement) -> Result<(), String> {
        let mut turn = self.turn(until).ok_or_else(|| "it answers another question".to_owned())?;
        let program = &mut turn.program;
        if let Some((end, why)) = &program.paused
            && Instant::now() < *end
        {
            return Err(format!("{why}; it is asked again after {} s", PAUSE.as_secs()));
        }
        program.paused = None;
        let asked = self.ask_program(program, lists, until, said);
        let is_silent = program.oracle.as_ref().is_none_or(|oracle| oracle.n_answers == 0);
        if let Err(why) = asked.as_ref().map_err(Clone::clone)
            && is_silent
        {
            program.paused = Some((Instant::now() + PAUSE, why));
        }
        asked
    }

    fn ask_program(
        &self,
        program: &mut Program,
        lists: &[Vec<Arc<Resource>>],
        until: Instant,
        said: &mut Judgement,
    ) -> Result<(), String> {
        let begun = Instant::now();
        let time = until.saturating_duration_since(begun);
        let bounds = Bounds { begun, time, n_runs: MAX_RUNS, crash: Crash::Undecided };
        let oracle = self.oracle_of(program, bounds)?;
        for list in lists {
            // An earlier list may have the same versions.
            let list = self.rest(list, said);
            let Verdict { refused, taken, undecided, .. } = oracle.judge(&list);
            let mut remembered = self.remembered();
            for resource in &taken {
                remembered.insert(resource, Answer::Taken);
            }
            for Refusal { resource, why, is_of_conflict } in refused {
                // What conflicts with others may be fine without them.
                if !is_of_conflict {
                    remembered.insert(&resource, Answer::Refused(why.clone(), Instant::now()));
                }
                said.refused.push((resource, why));
            }
            drop(remembered);
            if let Some(why) = undecided {
                return Err(why);
            }
        }
        Ok(())
    }

    /// The program, which is looked for if its file is new.
    fn oracle_of<'p>(&self, program: &'p mut Program, bounds: Bounds) -> Result<&'p mut Oracle, String> {
        let written_at = fs::metadata(&self.path).and_then(|file| file.modified());
        let written_at = written_at.map_err(|error| format!("it cannot be started: {error}"))?;
        let known = program.oracle.take().filter(|_| program.written_at == Some(written_at));
        let oracle = match known {
            Some(known) => Oracle { bounds, n_runs: 0, n_answers: 0, ..known },
            None => {
                let envoy = Envoy::new(&self.path, &self.parent, bounds.time.min(MAX_VERSION))?;
                let judge = format!("Envoy {}", envoy.version());
                *self.remembered() = Memory { judge, ..Memory::default() };
                program.written_at = Some(written_at);
                Oracle { envoy, bounds, n_runs: 0, n_answers: 0 }
            }
        };
        Ok(program.oracle.insert(oracle))
    }

    /// What is not remembered of a list and can be asked about; what is remembered as refused is said.
    fn rest(&self, list: &[Arc<Resource>], said: &mut Judgement) -> Vec<Arc<Resource>> {
        let remembered = self.remembered();
        let mut rest = Vec::new();
        for resource in list {
            match remembered.answer(resource) {
                Some(Answer::Taken) => {}
                Some(Answer::Refused(why, _)) => {
                    let is_said = said.refused.iter().any(|(one, _)| Arc::ptr_eq(one, resource));
                    if !is_said {
                        said.refused.push((Arc::clone(resource), why.clone()));
                    }
                }
                None => rest.push(Arc::clone(resource)),
            }
        }
        drop(remembered);
        rest.retain(|resource| Candidate::of(resource).is_some());
        rest
    }
}

impl xds_control::Oracle for Serving {
    fn judge(&self, lists: &[Vec<Arc<Resource>>], until: Instant) -> Judgement {
        let begun = Instant::now();
        let mut said = Judgement::default();
        let rest: Vec<Vec<Arc<Resource>>> = lists.iter().map(|list| self.rest(list, &mut said)).collect();
        let n_asked: usize = rest.iter().map(Vec::len).sum();
        if n_asked > 0 {
            let asked = self.ask(&rest, until, &mut said);
            let n_refused = said.refused.len();
            if let Err(why) = asked {
                let is_open = |one: &&Arc<Resource>| {
                    !self.knows(one) && !said.refused.iter().any(|(bad, _)| Arc::ptr_eq(bad, one))
                };
                said.n_undecided = rest.iter().flatten().filter(is_open).count();
                said.why = Some(format!("{}: {why}", self.path.display()));
            }
            self.metrics.oracle(n_asked, n_refused, said.n_undecided, begun.elapsed());
        }
        said.judge.clone_from(&self.remembered().judge);
        said
    }

    fn knows(&self, resource: &Resource) -> bool {
        self.remembered().answer(resource).is_some()
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The program, which is given back in the end.
struct Turn<'s> {
    serving: &'s Serving,
    program: Program,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let program = std::mem::take(&mut self.program);
        *self.serving.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
        self.serving.is_free.notify_one();
    }
}

impl Memory {
    fn answer(&self, resource: &Resource) -> Option<&Answer> {
        let answer = self.answers.get(&(resource.key().clone(), resource.version()))?;
        let is_over = matches!(answer, Answer::Refused(_, at) if at.elapsed() >= REFUSAL_COUNTS);
        (!is_over).then_some(answer)
    }

    fn insert(&mut self, resource: &Resource, answer: Answer) {
        let asked = (resource.key().clone(), resource.version());
        if self.answers.insert(asked.clone(), answer).is_none() {
            self.order.push_back(asked);
        }
        while self.answers.len() > MAX_REMEMBERED {
            let Some(oldest) = self.order.pop_front() else { break };
            self.answers.remove(&oldest);
        }
    }
}

/// Runs of one question. More do not fit into its time.
const MAX_RUNS: usize = 40;

/// How long it is not asked after it gave no answer, so that changes do not wait for it one after the other.
const PAUSE: Duration = Duration::from_secs(30);

/// How long a refusal counts.
const REFUSAL_COUNTS: Duration = Duration::from_secs(60);

/// Answers that are remembered: some 10 MB.
const MAX_REMEMBERED: usize = 65_536;
