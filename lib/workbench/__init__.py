"""The lakehouse workbench: what the notebooks share. The modules in the order of the flow:

the ground                 params (worlds), secrets, errors, wait, files
the embedded stack  artifacts (pinned jars), doctor, process (one service), services (the rows), stack (verbs)
source database            generate, generate_moma (data), load, load_moma (load it), sources (publish, grant, query)
connector, topic           connect (config, apply, status; connect_rest), schemas, registry (Apicurio), topics
files                      landing (topics → files; landing_sinks reads the connector's JSON, landing_write and
                           landing_avro run inside Spark), batch (what landing and ingest share), avro (its bytes
                           and files, without Spark)
Hudi table                 spark (sessions; spark_server), hudi (tables; its parts catalog, procedures), ingest (into
                           them; changes, decode[_avro|_landed]), timeline (commits, instants by label), travel (a
                           table's past)
query, check, picture      query (Athena's SQL), readcost (what one reads), check (claims against the source;
                           check_values compares, check_line shows), published (configurations beside
                           the published ones), show (tables, charts; show_names), draw (a
                           table's past), toc, trace (one row through everything; trace_source, trace_topic and
                           trace_lake are its parts in the source, the topic and Hudi, trace_show tells it)
running                    run (headless, in order; execute, run_record), report, cli (`workbench`), bench (speed;
                           bench_travel)
walkthroughs               outbox, museum[_flow] (notebooks/10_outbox, 50_time_travel: what they make, so that each
                           runs alone)

Two sides of one noun are two modules with the same functions and a chooser before them: `connect` has connect_rest now,
and MSK Connect later; `query.sql` runs on Spark now, and on Athena later; `spark.session` knows Spark Connect and an
existing session; `files` and `Table.base` take file: and s3: addresses.
"""
