//! A service that is made when it is asked for the first time.

use std::convert::Infallible;
use std::future::ready;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;
use tower::util::BoxCloneSyncService;

/// A service with the name of `N`. A large service that is rarely called takes no memory before its first call.
pub(crate) struct Late<N> {
    made: Arc<LazyLock<Made, Box<dyn FnOnce() -> Made + Send>>>,
    name: PhantomData<fn() -> N>,
}

/// Without it, its answer to every call.
type Made = Result<BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>, Status>;

impl<N> Late<N> {
    /// A service that `make` makes.
    pub(crate) fn new(make: impl FnOnce() -> Made + Send + 'static) -> Self {
        Self { made: Arc::new(LazyLock::new(Box::new(make))), name: PhantomData }
    }
}

impl<N> Clone for Late<N> {
    fn clone(&self) -> Self {
        Self { made: Arc::clone(&self.made), name: PhantomData }
    }
}

impl<N: NamedService> NamedService for Late<N> {
    const NAME: &'static str = N::NAME;
}

impl<N> Service<Request<Body>> for Late<N> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    /// Services of the library are always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match &**self.made {
            Ok(service) => service.clone().call(request),
            Err(status) => Box::pin(ready(Ok(status.clone().into_http()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn it_is_made_once_and_not_before_it_is_called() {
        let n_made = Arc::new(AtomicUsize::new(0));
        let mut late = Late::<()>::new({
            let n_made = Arc::clone(&n_made);
            move || {
                n_made.fetch_add(1, Ordering::Relaxed);
                let answer = |_: Request<Body>| ready(Ok(Response::new(Body::empty())));
                Ok(BoxCloneSyncService::new(tower::service_fn(answer)))
            }
        });
        let mut copy = late.clone();
        assert_eq!(n_made.load(Ordering::Relaxed), 0);
        for late in [&mut late, &mut copy] {
            late.call(Request::new(Body::empty())).await.unwrap();
            assert_eq!(n_made.load(Ordering::Relaxed), 1);
        }
    }
}
