//! Clients that come back after they rejected something: with another connection, or to a server that was started anew.

use super::*;

impl World {
    /// Opens another connection to a server that knows these of what clients rejected.
    fn come_back(&mut self, culprits: &Arc<Culprits>) {
        self.stream = StreamId(self.stream.0 + 1);
        self.entry = entry(self.stream, self.variant, &self.node);
        self.client = Client::sharing(Limits::default(), Arc::clone(culprits));
        self.client.open(self.stream, self.variant, None, 1);
        self.to_client.clear();
        let (node, type_url) = (Some(Arc::clone(&self.node)), self.of.type_url().to_owned());
        let version = |name: &String, content: &String| {
            let resource = Resource::plain(self.of.clone(), name, content.clone());
            (name.clone(), resource.version().to_string())
        };
        let request: Request = match self.variant {
            Variant::Sotw => SotwRequest {
                node,
                type_url,
                resource_names: self.names.clone(),
                version_info: "of what it accepted last".to_owned(),
                ..Default::default()
            }
            .into(),
            Variant::Delta => DeltaRequest {
                node,
                type_url,
                resource_names_subscribe: self.names.clone(),
                initial_resource_versions: self
                    .shown
                    .iter()
                    .map(|(n, content)| version(n, content))
                    .collect(),
                ..Default::default()
            }
            .into(),
        };
        self.client.handle_request(self.stream, request).expect("a client within the protocol");
        let mut receiver = self.publisher.follow(&self.node);
        self.client.handle_view(receiver.take().expect("a view"));
        self.receiver = Some(receiver);
        self.tell_events();
        self.drain();
    }
}

#[test]
fn what_an_envoy_rejected_before_it_came_back_is_rejected_though_it_acknowledges_that() {
    let bad = BTreeSet::from([1]);
    let refused = (vec!["r0001".to_owned()], 0);
    for of in [ResourceType::Secret, ResourceType::ExtensionConfig] {
        for variant in [Variant::Sotw, Variant::Delta] {
            let culprits = Arc::default();
            let mut world = World::sharing(&culprits, 1, (variant, of.clone()), 3, true);
            world.publish("1", &BTreeSet::new());
            world.ask();
            world.drain();
            world.publish("2", &bad);
            world.drain();
            assert_eq!((world.standing(), world.n_nacks), (refused.clone(), 1));

            world.come_back(&culprits);
            assert_eq!((world.standing(), world.n_nacks), (refused.clone(), 1), "{variant:?} {of}");
            let anew = Arc::<Culprits>::default();
            culprits.accepted_later().into_iter().for_each(|culprit| anew.add(culprit));
            world.come_back(&anew);
            assert_eq!((world.standing(), world.n_nacks), (refused.clone(), 1), "{variant:?} {of}");
            // By now it says that it has that.
            world.come_back(&anew);
            assert_eq!((world.standing(), world.n_nacks), (refused.clone(), 1), "{variant:?} {of}");
            let words = &world.status().standing.expect("a rejection").rejected[0].message;
            assert!(words.starts_with("no (said before this connection"), "{words}");

            world.publish("3", &BTreeSet::new());
            world.drain();
            assert_eq!(world.standing(), (vec![], 0), "corrected: {variant:?} {of}");

            // What only others rejected, since this one connected, it says itself.
            let version = Resource::plain(of.clone(), "r0002", "4").version();
            let known = anew.accepted_later().pop().expect("one");
            let key = ResourceKey { resource_type: of.clone(), name: "r0002".into() };
            anew.add(Culprit { key, version, ..known });
            world.publish("4", &BTreeSet::new());
            world.drain();
            assert_eq!(world.standing(), (vec![], 0), "accepted: {variant:?} {of}");
        }
    }
}

#[test]
fn everything_that_an_envoy_rejected_is_known_when_it_comes_back() {
    let bad: BTreeSet<usize> = (0..40).collect();
    for variant in [Variant::Sotw, Variant::Delta] {
        let culprits = Arc::default();
        let mut world = World::sharing(&culprits, 1, (variant, ResourceType::Secret), 41, true);
        world.publish("1", &BTreeSet::new());
        world.ask();
        world.drain();
        world.publish("2", &bad);
        world.drain();
        let n_rejected = |world: &World| world.status().standing.map(|standing| standing.n_rejected);
        assert_eq!(n_rejected(&world), Some(40));
        world.come_back(&culprits);
        assert_eq!(n_rejected(&world), Some(40), "{variant:?}");
    }
}

#[test]
fn what_an_envoy_accepts_after_something_else_is_in_use() {
    let bad = BTreeSet::from([1]);
    for variant in [Variant::Sotw, Variant::Delta] {
        let culprits = Arc::default();
        let mut world = World::sharing(&culprits, 1, (variant, ResourceType::Secret), 3, true);
        world.publish("1", &BTreeSet::new());
        world.ask();
        world.drain();
        world.publish("2", &bad);
        world.drain();
        world.come_back(&culprits);
        assert_eq!(world.standing(), (vec!["r0001".to_owned()], 0), "{variant:?}");
        world.publish("3", &BTreeSet::new());
        world.drain();
        // Its cause was mended at the Envoy.
        world.publish("2", &BTreeSet::new());
        world.drain();
        assert_eq!(world.standing(), (vec![], 0), "{variant:?}");
    }
}
