//! A real browser: Debian's packages `chromium` and `chromium-driver`, without a window.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::Process;
use crate::server::free_addr;
use crate::tools;
use crate::wait::{PATIENCE, wait_for};

/// A browser with one page. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    client: Client,
    driver: Process,
    /// What it writes.
    _files: TempDir,
    /// The checks of accessibility, as a script.
    axe: String,
}

/// A call of the protocol of Chromium's own tools.
#[derive(Debug)]
struct DevTools(Value);

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.0.to_string()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver would leave the browser behind.
        self.driver.kill_group();
    }
}

impl Browser {
    /// Starts a browser; `None` without one.
    ///
    /// # Errors
    ///
    /// If it does not start, or there is none and [every client is required](tools::require_all).
    pub async fn start() -> Result<Option<Self>> {
        let is_there = tools::is_present("chromium", "chromium", "--version")?
            && tools::is_present("chromium", "chromedriver", "--version")?;
        let Some(modules) = tools::axe().await?.filter(|_| is_there) else { return Ok(None) };
        let axe = fs::read_to_string(modules.join("axe-core/axe.min.js"))?;
        let port = free_addr()?.port();
        let files = TempDir::new()?;
        let mut driver = Command::new("chromedriver");
        driver.arg(format!("--port={port}")).env("TMPDIR", files.path()).process_group(0);
        let mut driver = Process::spawn("chromedriver", &mut driver)?;
        let started = |line: &str| line.contains("started successfully").then_some(());
        driver.wait_line("its start", PATIENCE, started).await?;
        // A process that may do everything has no use for the browser's own sandbox, which needs a right that containers do not give.
        let args =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en"];
        let mut wanted = Map::new();
        wanted.insert("goog:chromeOptions".to_owned(), json!({ "args": args }));
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(wanted)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await?;
        let browser = Self { client, driver, _files: files, axe };
        browser.client.set_window_size(WIDTH, HEIGHT).await?;
        let watch = json!({ "source": WATCH });
        browser.devtools("Page.addScriptToEvaluateOnNewDocument", &watch).await?;
        Ok(Some(browser))
    }

    /// Goes to an address.
    ///
    /// # Errors
    ///
    /// If the browser cannot.
    pub async fn open(&self, url: &str) -> Result<()> {
        Ok(self.client.goto(url).await?)
    }

    /// The path and query of the page that is shown.
    ///
    /// # Errors
    ///
    /// If the browser does not say.
    pub async fn path(&self) -> Result<String> {
        let url = self.client.current_url().await?;
        Ok(url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path())))
    }

    /// The text that is seen of the first element that a selector finds.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn text(&self, selector: &str) -> Result<String> {
        let element = self.client.find(Locator::Css(selector)).await;
        Ok(element.with_context(|| selector.to_owned())?.text().await?)
    }

    /// Waits until a text is seen in an element.
    ///
    /// # Errors
    ///
    /// If it is not in time.
    pub async fn wait_text(&self, selector: &str, wanted: &str) -> Result<String> {
        self.wait_text_within(PATIENCE, selector, wanted).await
    }

    /// The same within a time.
    ///
    /// # Errors
    ///
    /// If it is not in time.
    pub async fn wait_text_within(&self, limit: Duration, selector: &str, wanted: &str) -> Result<String> {
        wait_for(wanted, limit, async || {
            let text = self.text(selector).await?;
            ensure!(text.contains(wanted), "{selector} has {text:?}");
            Ok(text)
        })
        .await
    }

    /// Clicks on the first element with this text, which may be a link, a button or something that unfolds.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn click(&self, text: &str) -> Result<()> {
        let path = format!("(//a|//button|//summary)[normalize-space()={text:?}]");
        let wanted = format!("something to click that says {text:?}");
        let element = wait_for(&wanted, PATIENCE, async || {
            let found = self.client.find(Locator::XPath(&path)).await;
            match found {
                Ok(element) => Ok(element),
                Err(error) => Err(error).context(self.text("body").await.unwrap_or_default()),
            }
        })
        .await?;
        Ok(element.click().await?)
    }

    /// Types a text into a field.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn type_into(&self, selector: &str, text: &str) -> Result<()> {
        let element = self.client.find(Locator::Css(selector)).await;
        let element = element.with_context(|| selector.to_owned())?;
        element.clear().await?;
        Ok(element.send_keys(text).await?)
    }

    /// What a script returns.
    ///
    /// # Errors
    ///
    /// If it throws.
    pub async fn run(&self, script: &str) -> Result<Value> {
        Ok(self.client.execute(script, vec![]).await?)
    }

    /// Shows pages as on a light or dark desktop.
    ///
    /// # Errors
    ///
    /// If the browser cannot.
    pub async fn prefer(&self, scheme: &str) -> Result<()> {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", &features).await.map(drop)
    }

    /// Gives the window a size in pixels.
    ///
    /// # Errors
    ///
    /// If the browser cannot.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size).await.map(drop)
    }

    /// A picture of what is seen, as WebP.
    ///
    /// # Errors
    ///
    /// If the browser makes none.
    pub async fn picture(&self) -> Result<Vec<u8>> {
        let form = json!({"format": "webp", "quality": 70});
        let made = self.devtools("Page.captureScreenshot", &form).await?;
        Ok(STANDARD.decode(made["data"].as_str().context("no picture")?)?)
    }

    /// Checks the page that is shown: nothing that the policy of the page forbids, no error of a script, and nothing serious that keeps
    /// people out.
    ///
    /// # Errors
    ///
    /// Everything that is found.
    pub async fn check(&self) -> Result<()> {
        let path = self.path().await?;
        let seen = self.run("return window.seenProblems;").await?;
        ensure!(seen == json!([]), "{path}: {seen:#}");
        self.run(&self.axe).await?;
        let script = "const done = arguments[arguments.length - 1];
            axe.run(document, {resultTypes: ['violations']}).then(
                found => done(found.violations.filter(one => ['serious', 'critical'].includes(one.impact)).map(
                    one => [one.id, one.help, one.nodes.slice(0, 3).map(node => [node.html, node.failureSummary])])),
                error => done([String(error)]));";
        let found = self.client.execute_async(script, vec![]).await?;
        ensure!(found == json!([]), "{path}: {found:#}");
        Ok(())
    }

    async fn devtools(&self, method: &str, params: &Value) -> Result<Value> {
        let call = DevTools(json!({ "cmd": method, "params": params }));
        self.client.issue_cmd(call).await.map_err(|error| anyhow!("{method}: {error}"))
    }
}

/// Keeps what a page does that it must not.
const WATCH: &str = "window.seenProblems = [];
document.addEventListener('securitypolicyviolation', event => window.seenProblems.push(`${event.violatedDirective}: ${event.blockedURI}`));
window.addEventListener('error', event => window.seenProblems.push(String(event.message)));
window.addEventListener('unhandledrejection', event => window.seenProblems.push(String(event.reason)));";

const WIDTH: u32 = 1280;
const HEIGHT: u32 = 900;
