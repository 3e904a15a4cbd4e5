//! `/v1/fleet`: how the clients are as a whole, and which are worst off.

use axum::extract::State;
use xds_control::peers::Question;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::everyone::{Everyone, scope_texts};
use crate::fleet::{Fleet, FleetQuery};
use crate::input::Params;
use crate::problem::ApiError;
use crate::state::{ApiState, aside};

pub(crate) async fn read(
    State(state): State<ApiState>,
    caller: Caller,
    Params(query): Params<FleetQuery>,
) -> Result<Answer, ApiError> {
    let query = query.check()?;
    let Some(all) = Everyone::new(&state, None)? else {
        let work = move || Answer::ok(&Fleet::here(&state, &caller, &query));
        return aside(work).await?;
    };
    let asked = query.up_to_the_page();
    let text = serde_json::to_value(&asked).unwrap_or_default();
    let question = Question::Fleet { query: text, scope: caller.scope().map(scope_texts) };
    let own = aside(move || Fleet::here(&state, &caller, &asked)).await?;
    let found = all.pages::<Fleet>(question, own).await;
    let replicas = found.report();
    Answer::ok(&Fleet::of_all(found.into_answers(), replicas, &query))
}
