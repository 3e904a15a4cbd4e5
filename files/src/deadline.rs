//! Work on file systems that may never end: on a thread that can be left behind.
//!
//! A call to a lost network file system, or to a program behind FUSE, may block for ever, and cannot be cancelled. Each piece of work
//! runs on a thread, so such a file does not stop the source. A thread that hangs is abandoned, and its path is not touched again
//! until it is done.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Reports progress of work: each step begins the time anew.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Another step is done.
    pub fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn n_steps(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The work hangs, or hung before and is not done yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hangs;

/// Does one piece of work after the other, each for as long as it goes on.
pub struct Hands {
    deadline: Duration,
    thread: Option<mpsc::Sender<Job>>,
    /// The roots that hang, and for each if it has ended by now.
    hanging: Vec<(String, Arc<AtomicBool>)>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Hands {
    /// Work may be silent for `deadline`.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self { deadline, thread: None, hanging: Vec::new() }
    }

    /// Does the work and waits for it. `about` names what it is about: a path.
    ///
    /// # Errors
    ///
    /// [`Hangs`] if it makes no step for the deadline, if earlier work about the same thing has not ended, or if so much hangs that
    /// no more threads are spent on it.
    pub fn run<T: Send + 'static>(
        &mut self,
        about: &str,
        work: impl FnOnce(&Progress) -> T + Send + 'static,
    ) -> Result<T, Hangs> {
        self.hanging.retain(|(_, is_done)| !is_done.load(Ordering::Acquire));
        if self.hanging.len() >= MAX_HANGING || self.hanging.iter().any(|(hanging, _)| hanging == about) {
            return Err(Hangs);
        }
        let (progress, is_done) = (Progress::default(), Arc::new(AtomicBool::new(false)));
        let (answer, answers) = mpsc::sync_channel(1);
        let (of_job, done_by_job) = (progress.clone(), Arc::clone(&is_done));
        let job: Job = Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&of_job)));
            done_by_job.store(true, Ordering::Release);
            // The caller may have stopped waiting. After a panic, no answer comes.
            let _ = outcome.map(|outcome| answer.send(outcome));
        });
        if !self.give(job) {
            return Err(Hangs);
        }
        let mut n_steps = progress.n_steps();
        loop {
            match answers.recv_timeout(self.deadline) {
                Ok(outcome) => return Ok(outcome),
                Err(mpsc::RecvTimeoutError::Timeout) if progress.n_steps() != n_steps => {
                    n_steps = progress.n_steps();
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.hanging.push((about.to_owned(), is_done));
                    // The thread ends with its work, because no more can be sent to it.
                    self.thread = None;
                    return Err(Hangs);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Hangs),
            }
        }
    }

    /// Hands a job to the thread, or to a new one; whether there is one.
    fn give(&mut self, job: Job) -> bool {
        let job = match &self.thread {
            Some(thread) => match thread.send(job) {
                Ok(()) => return true,
                Err(mpsc::SendError(job)) => job,
            },
            None => job,
        };
        let (sender, jobs) = mpsc::channel::<Job>();
        let work = move || jobs.into_iter().for_each(|job| job());
        let started = thread::Builder::new().name("files".to_owned()).spawn(work);
        let is_given = started.is_ok() && sender.send(job).is_ok();
        self.thread = Some(sender).filter(|_| is_given);
        is_given
    }
}

impl fmt::Debug for Hands {
    /// Lists the roots that hang.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hanging: Vec<&String> = self.hanging.iter().map(|(about, _)| about).collect();
        f.debug_struct("Hands").field("hanging", &hanging).finish_non_exhaustive()
    }
}

/// Threads that are left behind. Where so much hangs, more would too.
const MAX_HANGING: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_left_behind_and_the_rest_goes_on() {
        let mut hands = Hands::new(Duration::from_millis(20));
        let (release, wait) = mpsc::channel::<()>();
        assert_eq!(hands.run("a", move |_| wait.recv().is_ok()), Err(Hangs));
        assert_eq!(hands.run("a", |_| 1), Err(Hangs), "not again until it is done");
        assert_eq!(hands.run("b", |_| 2), Ok(2));
        release.send(()).unwrap();
        // The thread needs a moment to tell that it is done.
        let again = std::iter::repeat_with(|| hands.run("a", |_| 3)).find(Result::is_ok);
        assert_eq!(again, Some(Ok(3)));
    }

    #[test]
    fn work_that_goes_on_may_take_longer() {
        let mut hands = Hands::new(Duration::from_millis(50));
        let worked = hands.run("a", |progress| {
            let began = std::time::Instant::now();
            while began.elapsed() < Duration::from_millis(300) {
                progress.step();
                thread::yield_now();
            }
        });
        assert_eq!(worked, Ok(()));
    }

    #[test]
    fn a_panic_is_no_end_of_everything() {
        let mut hands = Hands::new(Duration::from_secs(10));
        assert_eq!(hands.run("a", |_| panic!("on purpose")), Err::<(), _>(Hangs));
        assert_eq!(hands.run("a", |_| 1), Ok(1));
    }

    #[test]
    fn only_so_many_threads_are_left_behind() {
        let mut hands = Hands::new(Duration::from_millis(1));
        let (_release, wait) = mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        for n in 0..MAX_HANGING {
            let wait = Arc::clone(&wait);
            let hangs =
                hands.run(&n.to_string(), move |_| wait.lock().map(|wait| wait.recv().is_ok()).is_ok());
            assert_eq!(hangs, Err(Hangs), "{n}");
        }
        assert_eq!(hands.run("one more", |_| 1), Err(Hangs));
    }
}
