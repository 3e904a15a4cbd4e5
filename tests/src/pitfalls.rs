//! The 79 pitfalls of peers, and where each is proved here.
//!
//! The list was drawn up from the issues of other management servers before this one was begun. Comments cite its numbers, as
//! `pitfall 28`. Most are proved twice: as a
//! scenario of the pure session (`fixtures/scenarios`), where silence is certain, and over the real server
//! (`tests/tests/server/pitfalls`), where silence is proved by a marker that must be the next response.
//! `tests/tests/server/pitfalls/list.rs` checks that the list is complete and that every proof exists.

/// A mistake that a management server can make.
#[derive(Clone, Copy, Debug)]
pub struct Pitfall {
    /// Its number, from 1.
    pub number: u8,
    /// The claim that holds here instead.
    pub claim: &'static str,
    /// Where that is proved; never empty.
    pub proofs: &'static [Proof],
}

/// Where a claim is proved.
#[derive(Clone, Copy, Debug)]
pub enum Proof {
    /// In a test: its file, from the root of the workspace, and its name.
    Test(&'static str, &'static str),
    /// In a scenario below `fixtures/scenarios`.
    Scenario(&'static str),
}

use Proof::{Scenario, Test};

const fn pitfall(number: u8, claim: &'static str, proofs: &'static [Proof]) -> Pitfall {
    Pitfall { number, claim, proofs }
}

/// All pitfalls, by number.
// Each proof is one line, however long.
#[rustfmt::skip]
pub const PITFALLS: [Pitfall; 79] = [
    pitfall(1, "a rejected response is not sent again until it changes", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_01_a_rejected_response_is_not_sent_again_and_shows_in_the_status"),
        Scenario("sotw/pitfall_01_nack.txt"),
    ]),
    pitfall(2, "in delta, neither is a rejected resource", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_02_in_delta_only_what_changes_after_a_nack_is_sent"),
        Scenario("delta/pitfall_02_nack.txt"),
    ]),
    pitfall(3, "a NACK that changes the subscription is answered with what is new", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_03_a_nack_that_asks_for_one_more_name_is_answered_with_it"),
        Scenario("sotw/pitfall_03_nack_with_new_name.txt"),
    ]),
    pitfall(4, "only `error_detail` is a NACK", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_04_an_old_version_without_error_is_an_ack"),
        Scenario("sotw/pitfall_04_old_version_is_no_nack.txt"),
    ]),
    pitfall(5, "an ACK that comes at once is not lost", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_05_a_client_that_acks_within_microseconds_loses_no_change"),
    ]),
    pitfall(6, "a stale nonce acknowledges nothing; names always count", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_06_names_with_a_stale_nonce_count_and_the_ack_does_not"),
        Scenario("sotw/pitfall_06_stale_nonce.txt"),
    ]),
    pitfall(7, "in delta, a stale nonce stops no subscription", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_07_in_delta_a_stale_nonce_does_not_stop_a_subscription"),
        Scenario("delta/pitfall_07_stale_nonce.txt"),
    ]),
    pitfall(8, "nonces are of one stream", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_08_and_09_a_new_stream_is_answered_whatever_it_brings_from_an_old_one"),
        Scenario("sotw/pitfall_08_nonce_of_another_stream.txt"),
    ]),
    pitfall(9, "a new stream is answered whatever version it claims", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_08_and_09_a_new_stream_is_answered_whatever_it_brings_from_an_old_one"),
        Scenario("sotw/pitfall_09_reconnect_with_current_version.txt"),
    ]),
    pitfall(10, "an ACK under another type's URL hurts nothing", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_10_and_12_an_answer_counts_for_its_own_type_only"),
        Scenario("sotw/pitfall_10_ack_of_another_type.txt"),
    ]),
    pitfall(11, "no response and no group has a name twice", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_11_one_name_in_two_files_is_an_error_that_names_both"),
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_11_a_name_asked_for_twice_is_sent_once"),
        Test("codec/tests/forms.rs", "pitfall_11_one_name_twice_in_a_file_is_refused_with_both_places"),
        Scenario("sotw/pitfall_11_duplicate_names.txt"),
    ]),
    pitfall(12, "an answer counts for its own type only", &[
        Test("tests/tests/server/pitfalls/ack.rs", "pitfall_10_and_12_an_answer_counts_for_its_own_type_only"),
        Scenario("sotw/pitfall_12_ack_of_the_matching_type.txt"),
    ]),
    pitfall(13, "a name that comes back is sent again at the same version", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_13_and_30_a_name_subscribed_again_is_sent_again"),
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_13_and_14_a_name_that_comes_back_is_sent_at_the_same_version"),
        Scenario("sotw/pitfall_13_resubscribe.txt"),
        Scenario("delta/pitfall_13_resubscribe.txt"),
    ]),
    pitfall(14, "an added name is answered at once", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_13_and_14_a_name_that_comes_back_is_sent_at_the_same_version"),
        Scenario("sotw/pitfall_14_added_name.txt"),
    ]),
    pitfall(15, "a missing name does not hold back the others", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_15_16_and_17_a_missing_name_neither_holds_back_nor_loops_and_comes_when_it_exists"),
        Scenario("sotw/pitfall_15_missing_beside_existing.txt"),
    ]),
    pitfall(16, "a missing name makes no loop", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_15_16_and_17_a_missing_name_neither_holds_back_nor_loops_and_comes_when_it_exists"),
        Scenario("sotw/pitfall_16_no_loop_for_a_missing_name.txt"),
    ]),
    pitfall(17, "fewer names than there are, are answered", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_15_16_and_17_a_missing_name_neither_holds_back_nor_loops_and_comes_when_it_exists"),
        Scenario("sotw/pitfall_17_fewer_names_than_there_are.txt"),
    ]),
    pitfall(18, "a cluster of weight 0 may be asked for later", &[
        Test("tests/tests/server/pitfalls/order.rs", "pitfall_18_a_cluster_of_weight_zero_is_asked_for_later"),
        Scenario("sotw/pitfall_18_weight_zero.txt"),
        Test("tests/tests/envoys/documents/canary.rs", "a_canary_moves_the_calls_of_grpcio_and_fails_none"),
    ]),
    pitfall(19, "the wildcard begins and ends as the protocol says", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_19_in_delta_the_wildcard_begins_and_ends_as_the_protocol_says"),
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_19_the_wildcard_begins_and_ends_as_the_protocol_says"),
        Scenario("sotw/pitfall_19_wildcard.txt"),
        Scenario("delta/pitfall_19_wildcard.txt"),
    ]),
    pitfall(20, "a name unsubscribed under the wildcard is answered", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_20_a_name_unsubscribed_under_the_wildcard_is_answered"),
        Scenario("delta/pitfall_20_unsubscribe_under_the_wildcard.txt"),
    ]),
    pitfall(21, "virtual hosts have no wildcard", &[
        Scenario("delta/pitfall_21_no_wildcard_of_virtual_hosts.txt"),
    ]),
    pitfall(22, "only `*` alone is a wildcard", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_22_only_the_star_alone_is_a_wildcard"),
        Scenario("sotw/pitfall_22_only_the_star_is_a_wildcard.txt"),
    ]),
    pitfall(23, "after unsubscribing from all, nothing is sent", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_23_nothing_is_sent_and_nothing_shown_after_unsubscribing_from_all"),
        Scenario("sotw/pitfall_23_nothing_after_unsubscribing.txt"),
    ]),
    pitfall(24, "a response is made for the newest names", &[
        Scenario("sotw/pitfall_24_response_for_the_newest_names.txt"),
    ]),
    pitfall(25, "lists of listeners and clusters are complete", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_25_and_26_lists_of_clusters_are_complete_also_when_they_are_empty"),
        Scenario("sotw/pitfall_25_complete_lists.txt"),
    ]),
    pitfall(26, "an empty list is sent", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_25_and_26_lists_of_clusters_are_complete_also_when_they_are_empty"),
        Scenario("sotw/pitfall_26_empty_response.txt"),
    ]),
    pitfall(27, "a missing listener is answered at once", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_27_and_28_a_missing_name_is_answered_at_once_where_lists_are_complete"),
        Scenario("sotw/pitfall_27_missing_listener.txt"),
    ]),
    pitfall(28, "an orphan name hurts nothing", &[
        Test("tests/tests/server/pitfalls/subscription.rs", "pitfall_27_and_28_a_missing_name_is_answered_at_once_where_lists_are_complete"),
        Scenario("sotw/pitfall_28_orphan_name.txt"),
    ]),
    pitfall(29, "in delta, a missing name is told as removed, and sent when it exists", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_29_a_missing_name_is_told_as_removed_and_sent_when_it_exists"),
        Scenario("delta/pitfall_29_missing_name.txt"),
    ]),
    pitfall(30, "in delta, a name subscribed to again is sent again", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_13_and_30_a_name_subscribed_again_is_sent_again"),
        Scenario("delta/pitfall_30_subscribe_twice.txt"),
    ]),
    pitfall(31, "a reconnect gets what differs from the versions that it brings", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_31_and_32_a_reconnect_gets_what_differs_from_what_it_says_it_holds"),
        Scenario("delta/pitfall_31_reconnect_with_versions.txt"),
    ]),
    pitfall(32, "what comes without a version is sent", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_31_and_32_a_reconnect_gets_what_differs_from_what_it_says_it_holds"),
        Scenario("delta/pitfall_32_reconnect_without_versions.txt"),
    ]),
    pitfall(33, "a change removes nothing else", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_33_34_and_35_only_what_goes_is_removed_and_what_comes_back_is_sent"),
        Scenario("delta/pitfall_33_one_change_removes_nothing.txt"),
    ]),
    pitfall(34, "unsubscribing is no removal", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_33_34_and_35_only_what_goes_is_removed_and_what_comes_back_is_sent"),
        Scenario("delta/pitfall_34_unsubscribing_is_no_removal.txt"),
    ]),
    pitfall(35, "what is removed and added again is sent again", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_33_34_and_35_only_what_goes_is_removed_and_what_comes_back_is_sent"),
        Scenario("delta/pitfall_35_removed_and_added_again.txt"),
    ]),
    pitfall(36, "secrets and extensions carry name and version", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_36_and_37_secrets_extensions_and_runtimes_are_named_and_versioned"),
        Scenario("delta/pitfall_36_secrets_and_extensions.txt"),
    ]),
    pitfall(37, "runtime layers are sent by name", &[
        Test("tests/tests/server/pitfalls/delta.rs", "pitfall_36_and_37_secrets_extensions_and_runtimes_are_named_and_versioned"),
        Scenario("delta/pitfall_37_runtime.txt"),
    ]),
    pitfall(38, "what is still referred to is not removed", &[
        Test("tests/tests/server/pitfalls/order.rs", "pitfall_38_with_strict_what_is_referred_to_cannot_be_removed"),
        Scenario("delta/pitfall_38_removed_while_in_use.txt"),
    ]),
    pitfall(39, "a stream that is not read holds up no publication", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_39_a_stream_of_many_types_that_is_not_read_delays_no_publication"),
        Scenario("delta/pitfall_39_many_types_not_read.txt"),
    ]),
    pitfall(40, "one change of all leaves in the order of references", &[
        Test("tests/tests/server/pitfalls/order.rs", "pitfall_40_one_change_of_all_leaves_in_the_order_of_references"),
        Scenario("sotw/rule_12_order.txt"),
        Scenario("delta/rule_12_order.txt"),
    ]),
    pitfall(41, "endpoints follow their changed cluster", &[
        Test("tests/tests/server/pitfalls/order.rs", "pitfall_41_endpoints_follow_their_changed_cluster_once"),
        Scenario("sotw/pitfall_41_endpoints_follow_their_cluster.txt"),
        Scenario("delta/pitfall_41_endpoints_follow_their_cluster.txt"),
    ]),
    pitfall(42, "a replaced cluster goes after the routes have left it", &[
        Test("server/session/tests/hitless.rs", "an_envoy_always_has_what_it_uses"),
        Scenario("sotw/row_124_removals_last.txt"),
        Scenario("delta/row_124_removals_last.txt"),
        Scenario("sotw/nack_of_a_route.txt"),
    ]),
    pitfall(43, "back-pressure of one type does not break the order of types", &[
        Scenario("sotw/row_124_removals_last.txt"),
        Scenario("sotw/nack_of_a_dependency.txt"),
    ]),
    pitfall(44, "a change of weights is told as routes alone", &[
        Test("tests/tests/server/pitfalls/order.rs", "pitfall_44_a_change_of_weights_is_told_as_routes_and_nothing_else"),
        Test("tests/tests/envoys/documents/weights.rs", "only_the_route_configuration_changes_when_weights_do_pitfall_44"),
        Test("tests/tests/envoys/documents/canary.rs", "a_patch_is_one_route_response_on_a_stream_and_nothing_else_pitfall_44"),
    ]),
    pitfall(45, "versions mean content, not counts", &[
        Test("tests/tests/server/restart.rs", "pitfall_45_after_kill_9_equal_files_have_equal_versions_and_other_files_others"),
    ]),
    pitfall(46, "replicas agree on versions", &[
        Test("tests/tests/server/restart.rs", "pitfall_46_two_servers_with_the_same_files_in_another_order_have_equal_versions"),
        Test("codec/tests/canonical.rs", "pitfall_46_comments_and_spelling_change_no_byte"),
        Test("codec/tests/canonical.rs", "pitfall_46_the_order_of_keys_changes_no_byte"),
        Test("files/src/load/tests.rs", "pitfall_46_files_formats_and_the_order_of_keys_make_no_difference"),
    ]),
    pitfall(47, "equal content is silent", &[
        Test("tests/tests/server/pitfalls/order.rs", "pitfall_47_equal_content_is_silent_and_no_history"),
        Test("server/src/tests/files.rs", "pitfall_47_equal_files_are_no_revision_also_after_a_restart"),
        Test("server/src/tests/writes.rs", "pitfall_47_an_equal_write_is_no_revision"),
    ]),
    pitfall(48, "nothing is answered before the first load", &[
        Test("tests/tests/server/restart.rs", "pitfall_48_nothing_is_answered_before_the_first_load_and_readiness_says_why"),
        Test("server/src/tests/files.rs", "pitfall_48_nothing_is_served_before_the_first_complete_load"),
        Test("server/src/tests/rest.rs", "pitfall_48_the_server_is_not_ready_before_its_files_are"),
        Test("files/src/load/tests.rs", "pitfall_48_nothing_is_complete_before_one_clean_load"),
    ]),
    pitfall(49, "a node without configuration is told, and served once there is some", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_49_a_node_that_nothing_is_known_of_is_told_and_served_once_something_is"),
        Scenario("sotw/unmatched_nodes.txt"),
        Scenario("delta/unmatched_nodes.txt"),
    ]),
    pitfall(50, "nobody is starved by an incoherent state", &[
        Test("tests/tests/server/pitfalls/order.rs", "pitfall_50_what_is_incoherent_is_published_and_starves_nobody"),
        Scenario("sotw/row_126_grace.txt"),
    ]),
    pitfall(51, "a first message without node is refused; later ones need none", &[
        Test("server/src/grpc/tests/discovery.rs", "pitfall_51_a_first_message_without_node_is_refused"),
        Scenario("sotw/pitfall_51_node.txt"),
        Scenario("delta/pitfall_51_node.txt"),
        Test("tests/tests/server/bad_input/messages.rs", "a_first_message_without_node_is_refused_on_every_service"),
    ]),
    pitfall(52, "two streams of one node do not disturb each other", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_52_two_streams_of_one_node_are_served_and_end_each_by_itself"),
        Test("server/src/grpc/tests/discovery.rs", "pitfall_52_streams_of_one_node_live_and_end_by_themselves"),
        Scenario("sotw/pitfall_52_two_streams_of_one_node.txt"),
    ]),
    pitfall(53, "a group that comes back reaches the same stream", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_53_a_group_that_is_deleted_and_put_again_reaches_the_same_stream"),
        Scenario("sotw/pitfall_53_group_comes_back.txt"),
        Scenario("delta/pitfall_53_group_comes_back.txt"),
    ]),
    pitfall(54, "a stream that is cut leaves the status", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_54_and_65_a_stream_that_ends_in_any_way_leaves_the_status"),
        Test("server/src/grpc/tests/body.rs", "pitfall_54_a_stream_that_is_dropped_leaves_nothing_behind"),
    ]),
    pitfall(55, "no publication is lost between two nodes", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_55_publications_for_two_nodes_back_to_back_reach_both"),
        Test("cache/tests/publishing.rs", "pitfall_55_back_to_back_publications_reach_both_nodes"),
        Test("server/src/grpc/tests/discovery.rs", "pitfall_55_the_last_of_many_publications_reaches_everybody"),
    ]),
    pitfall(56, "pings of clients are welcome", &[
        Test("server/src/grpc/tests/connections.rs", "pitfall_56_pings_of_clients_are_welcome"),
    ]),
    pitfall(57, "half-open peers are reaped", &[
        Test("server/src/grpc/tests/connections.rs", "pitfall_57_a_half_open_peer_is_reaped"),
        Test("server/src/grpc/tests/connections.rs", "pitfall_57_a_peer_that_never_says_a_word_is_reaped_too"),
        Test("tests/tests/server/bad_input/clients.rs", "a_half_open_connection_is_reaped"),
    ]),
    pitfall(58, "large state is whole in SotW and split in delta", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_58_large_state_is_whole_in_sotw_and_split_in_delta"),
        Test("server/src/grpc/tests/discovery.rs", "pitfall_58_large_state_is_whole_in_sotw_and_split_in_delta"),
    ]),
    pitfall(59, "a large request is taken", &[
        Test("server/src/grpc/tests/limits.rs", "pitfall_59_a_message_may_be_large_but_not_larger_than_the_limit"),
    ]),
    pitfall(60, "many streams on one connection work", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_60_an_envoy_without_ads_opens_one_stream_per_cluster"),
        Test("server/src/grpc/tests/connections.rs", "pitfall_60_two_thousand_streams_on_one_connection"),
    ]),
    pitfall(61, "a client that does not read costs little and delays nobody", &[
        Test("server/src/grpc/tests/body.rs", "pitfall_61_a_stream_that_is_not_read_makes_nothing_and_then_the_newest"),
        Test("server/src/grpc/tests/connections.rs", "pitfall_61_a_client_that_never_reads_costs_little_and_delays_nobody"),
        Test("tests/tests/server/bad_input/clients.rs", "clients_that_never_read_cost_bounded_memory_delay_nobody_and_resume_with_the_newest"),
    ]),
    pitfall(62, "streams that come and go leave nothing behind", &[
        Test("server/src/grpc/tests/connections.rs", "pitfall_62_streams_that_come_and_go_leave_nothing_behind"),
    ]),
    pitfall(63, "a client that floods delays nobody", &[
        Test("server/src/grpc/tests/body.rs", "pitfall_63_a_stream_takes_in_only_so_many_requests_at_once"),
        Test("server/src/grpc/tests/connections.rs", "pitfall_63_a_client_that_sends_without_end_does_not_delay_others"),
        Test("tests/tests/server/bad_input/clients.rs", "a_client_that_sends_5000_requests_a_second_delays_nobody"),
    ]),
    pitfall(64, "unknown and wrong types end their own stream at most", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_64_an_unknown_type_is_remembered_and_hurts_no_other"),
        Test("server/src/grpc/tests/discovery.rs", "pitfall_64_types_that_do_not_fit_end_their_stream_only"),
    ]),
    pitfall(65, "a half-close is a clean end", &[
        Test("tests/tests/server/pitfalls/nodes.rs", "pitfall_54_and_65_a_stream_that_ends_in_any_way_leaves_the_status"),
        Test("server/src/grpc/tests/discovery.rs", "pitfall_65_a_client_that_closes_its_half_is_answered_and_ended_cleanly"),
    ]),
    pitfall(66, "SIGTERM ends in bounded time", &[
        Test("tests/tests/server/restart.rs", "pitfall_66_sigterm_with_open_streams_ends_in_time_with_a_goaway_and_exit_code_0"),
        Test("server/src/grpc/tests/shutdown.rs", "pitfall_66_a_reader_that_is_stuck_is_cut_off_at_the_bound"),
        Test("server/src/grpc/tests/shutdown.rs", "pitfall_66_open_streams_are_ended_and_the_server_stops"),
    ]),
    pitfall(67, "heartbeats come without a body, in time", &[
        Test("server/src/grpc/tests/body.rs", "pitfall_67_heartbeats_come_in_time"),
        Scenario("sotw/ttl.txt"),
        Scenario("delta/ttl.txt"),
    ]),
    pitfall(68, "no private key is shown anywhere", &[
        Test("tests/tests/server/bad_input/secrets.rs", "pitfall_68_a_private_key_is_in_no_log_answer_history_status_metric_or_event"),
        Test("tests/tests/envoys/documents/api.rs", "pitfall_68_a_key_of_a_document_is_shown_to_the_envoys_that_need_it_and_to_nobody_else"),
        Test("codec/tests/redaction.rs", "pitfall_68_a_change_of_a_key_shows_as_no_value"),
        Test("codec/tests/redaction.rs", "pitfall_68_a_secret_that_cannot_be_decoded_is_hidden_whole"),
        Test("codec/tests/redaction.rs", "pitfall_68_secrets_are_in_no_diagnostic"),
    ]),
    pitfall(69, "a bad file keeps its last good contents, the others go on", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_69_a_bad_file_keeps_its_last_good_and_the_others_go_on"),
        Test("files/src/load/tests.rs", "pitfall_69_a_bad_object_keeps_its_last_good_version_and_the_rest_goes_on"),
        Test("tests/tests/server/bad_input/files.rs", "a_broken_file_is_told_with_its_place_and_keeps_its_last_good_contents"),
        Test("tests/tests/envoys/documents/files.rs", "pitfall_69_a_bad_document_keeps_its_last_good_version_and_the_others_of_its_file_change"),
        Test("tests/tests/envoys/documents/files.rs", "pitfall_69_a_bad_file_keeps_all_of_its_documents_and_other_files_go_on"),
    ]),
    pitfall(70, "every way to save is seen", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_70_every_way_to_save_reaches_a_client_and_removes_nothing"),
        Test("tests/tests/envoys/documents/files.rs", "pitfall_70_no_way_to_save_a_document_costs_a_request"),
        Test("files/src/load/tests.rs", "pitfall_70_a_file_that_comes_back_in_time_was_never_away"),
        Test("server/src/source/watch/tests.rs", "pitfall_70_a_config_map_swap_is_one_change_every_time"),
        Test("server/src/source/watch/tests.rs", "pitfall_70_every_way_to_save_is_seen_every_time"),
    ]),
    pitfall(71, "an emptied file is never published", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_71_and_72_an_emptied_file_is_an_error_and_what_editors_leave_is_not_read"),
        Test("tests/tests/envoys/documents/files.rs", "pitfall_71_an_emptied_file_takes_no_route_away"),
        Test("codec/tests/forms.rs", "pitfall_71_an_empty_or_half_file_is_broken_and_not_empty"),
        Test("server/src/source/watch/tests.rs", "pitfall_71_a_file_that_is_truncated_and_then_written_is_never_empty"),
    ]),
    pitfall(72, "what editors leave is not read; order does not matter", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_71_and_72_an_emptied_file_is_an_error_and_what_editors_leave_is_not_read"),
        Test("tests/tests/envoys/documents/files.rs", "pitfall_72_neither_the_order_of_documents_nor_what_editors_leave_counts"),
        Test("files/src/names.rs", "pitfall_72_what_editors_leave_behind_is_ignored"),
        Test("files/src/read/tests.rs", "pitfall_72_subdirectories_are_read_and_other_files_are_not"),
        Test("server/src/source/watch/tests.rs", "pitfall_72_a_new_directory_is_watched_with_all_that_comes_into_it"),
    ]),
    pitfall(73, "many changes are few publications", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_73_five_hundred_files_at_once_are_few_publications"),
        Test("tests/tests/envoys/documents/files.rs", "pitfall_73_three_hundred_files_of_routes_at_once_are_few_publications"),
        Test("files/src/timing.rs", "pitfall_73_500_files_in_300_ms_are_one_load"),
        Test("files/src/timing.rs", "pitfall_73_continuous_writes_are_loaded_every_second"),
        Test("server/src/source/watch/tests.rs", "pitfall_73_500_files_rewritten_at_once_are_at_most_three_deliveries"),
    ]),
    pitfall(74, "references are never matched exactly", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_74_what_nobody_names_is_served_and_what_is_missing_is_a_warning"),
        Test("tests/tests/envoys/documents/files.rs", "pitfall_74_a_reference_to_nothing_is_a_warning_at_its_place_until_it_is_there"),
        Test("codec/tests/references.rs", "pitfall_74_only_a_missing_target_is_dangling"),
        Test("server/src/tests/writes.rs", "pitfall_74_a_dangling_reference_is_a_warning_and_with_strict_an_error"),
        Test("server/tests/cli.rs", "pitfall_74_dangling_references_are_warnings_unless_strict"),
    ]),
    pitfall(75, "an address that appears twice is refused", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_75_an_address_that_is_there_twice_is_refused"),
        Test("tests/tests/grpc/conformance/services.rs", "slices_are_joined_and_an_address_counts_once"),
    ]),
    pitfall(76, "weights that clients reject are refused", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_76_weights_that_clients_would_reject_are_refused"),
        Test("tests/tests/envoys/documents/files.rs", "pitfall_76_weights_of_documents_that_clients_would_reject_are_refused_or_fail_as_they_should"),
        Test("tests/tests/server/pitfalls/rest.rs", "of_many_concurrent_writers_with_one_tag_exactly_one_wins"),
        Test("server/src/tests/weights.rs", "what_is_wrong_with_a_change_is_told_and_nothing_changes"),
        Test("server/src/tests/weights.rs", "a_change_names_what_it_saw_and_one_of_two_at_once_is_refused"),
    ]),
    pitfall(77, "an override against its file is defined", &[
        Test("tests/tests/server/pitfalls/files.rs", "pitfall_77_an_override_hides_its_file_until_it_goes_also_after_a_restart"),
        Test("tests/tests/envoys/documents/api.rs", "pitfall_77_a_document_of_the_api_hides_the_files_until_it_goes_or_is_equal"),
        Test("tests/tests/envoys/documents/api.rs", "documents_of_the_api_and_the_last_good_of_files_survive_a_stop_and_a_kill"),
        Test("server/src/tests/files.rs", "pitfall_77_an_override_hides_the_file_until_it_goes_or_is_equal"),
        Test("server/src/tests/weights.rs", "an_override_outlives_other_weights_of_its_file_and_a_restart"),
        Test("server/src/tests/weights.rs", "an_override_that_the_file_has_caught_up_with_goes_d6"),
    ]),
    pitfall(78, "a write can wait for its ACKs", &[
        Test("tests/tests/server/pitfalls/rest.rs", "pitfall_78_a_write_that_waits_is_answered_when_all_have_acked"),
        Test("tests/tests/server/pitfalls/rest.rs", "pitfall_78_and_79_a_nack_is_424_and_the_write_stays"),
        Test("tests/tests/server/pitfalls/rest.rs", "pitfall_78_at_the_timeout_the_stragglers_are_named"),
        Test("server/src/tests/acked.rs", "pitfall_78_a_nack_is_424_and_the_write_stays"),
    ]),
    pitfall(79, "a NACK is visible and rolls back only if asked", &[
        Test("tests/tests/server/pitfalls/rest.rs", "pitfall_78_and_79_a_nack_is_424_and_the_write_stays"),
        Test("tests/tests/server/pitfalls/rest.rs", "pitfall_79_only_if_asked_a_nack_takes_the_change_back"),
        Test("server/src/tests/acked.rs", "pitfall_79_only_if_asked_a_nack_takes_the_change_back"),
        Test("server/src/tests/writes.rs", "pitfall_79_a_revert_undoes_one_revision_and_leaves_later_ones"),
        Test("tests/tests/envoys/waves.rs", "what_a_real_envoy_rejects_is_put_back"),
        Test("tests/tests/grpc/rollouts/mod.rs", "a_step_waits_for_every_client_and_a_nack_does_what_the_rollout_says"),
    ]),
];
