//! The errors that endpoints can answer with, besides those of every request.

use http::StatusCode;

pub(super) const NOT_FOUND: &[StatusCode] = &[StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE];
pub(super) const NOT_READY: &[StatusCode] = &[StatusCode::SERVICE_UNAVAILABLE];
pub(super) const EXPLAIN_ERRORS: &[StatusCode] = &[
    StatusCode::NOT_FOUND,
    StatusCode::GONE,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::SERVICE_UNAVAILABLE,
];
pub(super) const WATCH_ERRORS: &[StatusCode] =
    &[StatusCode::NOT_FOUND, StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
pub(super) const PUT_ERRORS: &[StatusCode] = &[
    StatusCode::CONFLICT,
    StatusCode::PRECONDITION_FAILED,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::FAILED_DEPENDENCY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::INSUFFICIENT_STORAGE,
];
pub(super) const DELETE_ERRORS: &[StatusCode] = &[
    StatusCode::NOT_FOUND,
    StatusCode::CONFLICT,
    StatusCode::PRECONDITION_FAILED,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::FAILED_DEPENDENCY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::INSUFFICIENT_STORAGE,
];

pub(super) const WEIGHTS_ERRORS: &[StatusCode] = &[
    StatusCode::NOT_FOUND,
    StatusCode::CONFLICT,
    StatusCode::PRECONDITION_FAILED,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::FAILED_DEPENDENCY,
    StatusCode::PRECONDITION_REQUIRED,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::INSUFFICIENT_STORAGE,
];

pub(super) const ROLLOUT_ERRORS: &[StatusCode] = &[
    StatusCode::NOT_FOUND,
    StatusCode::CONFLICT,
    StatusCode::PRECONDITION_FAILED,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::INSUFFICIENT_STORAGE,
];
