//! A reader of server-sent events, such as those of `GET /v1/events`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::wait::{PATIENCE, wait_for};

/// Reads events until it is dropped.
#[derive(Debug)]
pub struct Events {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Events {
    /// Opens the stream and waits for the head of the answer. All later events will come.
    ///
    /// # Errors
    ///
    /// If it is not answered with 200.
    pub async fn open(admin: SocketAddr) -> Result<Self> {
        Self::open_at(admin, "/v1/events").await
    }

    /// Opens another stream of events.
    ///
    /// # Errors
    ///
    /// If it is not answered with 200.
    pub async fn open_at(admin: SocketAddr, path: &str) -> Result<Self> {
        let mut socket = TcpStream::connect(admin).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {admin}\r\n\r\n");
        socket.write_all(request.as_bytes()).await?;
        let text = Arc::new(Mutex::new(String::new()));
        let reader = tokio::spawn({
            let text = Arc::clone(&text);
            async move {
                let mut bytes = vec![0; 16 * 1024];
                while let Ok(n @ 1..) = socket.read(&mut bytes).await {
                    let read = String::from_utf8_lossy(bytes.get(..n).unwrap_or_default());
                    text.lock().unwrap_or_else(PoisonError::into_inner).push_str(&read);
                }
            }
        });
        let events = Self { text, reader };
        events.wait("\r\n\r\n").await?;
        ensure!(events.text().starts_with("HTTP/1.1 200"), "{}", events.text());
        Ok(events)
    }

    /// Everything that was read, the head of the answer included.
    #[must_use]
    pub fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a text was read.
    ///
    /// # Errors
    ///
    /// If it does not come.
    pub async fn wait(&self, wanted: &str) -> Result<()> {
        wait_for("an event", PATIENCE, async || {
            ensure!(self.text().contains(wanted), "no {wanted:?}");
            Ok(())
        })
        .await
        .with_context(|| self.text())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
