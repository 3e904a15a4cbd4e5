//! Models of what clients are served, kept for those who look at them again and again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use xds_cache::View;
use xds_explain::{Client, Model};

/// The last models. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Models(Arc<Mutex<VecDeque<Kept>>>);

#[derive(Debug)]
struct Kept {
    view: Weak<View>,
    client: Client,
    /// Empty while it is made.
    model: Arc<OnceLock<Arc<Model>>>,
}

impl Models {
    /// The model of what a view serves. Blocks while it is made; who asks for another one does not wait for that.
    pub(crate) fn of(&self, view: &Arc<View>, client: Client) -> Arc<Model> {
        let model = self.place(view, client);
        Arc::clone(model.get_or_init(|| Arc::new(Model::of_view(view, client))))
    }

    fn place(&self, view: &Arc<View>, client: Client) -> Arc<OnceLock<Arc<Model>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |one: &Kept| std::ptr::eq(one.view.as_ptr(), Arc::as_ptr(view)) && one.client == client;
        if let Some(known) = kept.iter().find(|one| is_it(one)) {
            return Arc::clone(&known.model);
        }
        // The view of another model may be gone, and then nobody asks for it again.
        kept.retain(|one| one.view.strong_count() > 0);
        if kept.len() >= MAX_KEPT {
            kept.pop_front();
        }
        let model: Arc<OnceLock<Arc<Model>>> = Arc::default();
        kept.push_back(Kept { view: Arc::downgrade(view), client, model: Arc::clone(&model) });
        model
    }
}

/// How many are kept: each may be some times as large as what it is of.
const MAX_KEPT: usize = 2;
