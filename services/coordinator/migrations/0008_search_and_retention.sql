CREATE TABLE "Order_DeadLetter" (
	"ID" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "Order_DeadLetter_ID_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"Process" text collate "C" NOT NULL,
	"MessageID" text collate "C" NOT NULL,
	"Reason" text NOT NULL,
	"At" timestamp with time zone DEFAULT now() NOT NULL,
	"TransactionID" text collate "C",
	"ReplayID" integer,
	"StepName" text collate "C",
	"Content" "bytea" NOT NULL,
	"ContentBytes" integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE "Order_Installation" (
	"Name" text collate "C" PRIMARY KEY NOT NULL,
	"Value" jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "Order_Operation" (
	"ID" text collate "C" PRIMARY KEY NOT NULL,
	"Action" text NOT NULL,
	"Process" text collate "C" NOT NULL,
	"Request" jsonb NOT NULL,
	"DryRun" boolean DEFAULT false NOT NULL,
	"Status" text NOT NULL,
	"StatusReason" text,
	"KeyID" text NOT NULL,
	"Person" text,
	"Reason" text,
	"Progress" jsonb NOT NULL,
	"LeaseOwner" text,
	"LeaseUntil" timestamp with time zone,
	"CreatedAt" timestamp with time zone DEFAULT now() NOT NULL,
	"UpdatedAt" timestamp with time zone DEFAULT now() NOT NULL,
	"FinishedAt" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "Order_Tag" (
	"Name" text collate "C" NOT NULL,
	"Value" text collate "C" NOT NULL,
	"CreatedAt" timestamp with time zone NOT NULL,
	"Process" text collate "C" NOT NULL,
	"TransactionID" text collate "C" NOT NULL,
	"ReplayID" integer NOT NULL,
	CONSTRAINT "Order_Tag_pk" PRIMARY KEY("Name","Value","CreatedAt","Process","TransactionID","ReplayID")
);
--> statement-breakpoint
ALTER TABLE "Order_Header" DROP CONSTRAINT "Order_Header_times";--> statement-breakpoint
DROP INDEX "Order_Header_newest";--> statement-breakpoint
DROP INDEX "Order_Header_completed";--> statement-breakpoint
ALTER TABLE "Order_Action" ADD COLUMN "OperationID" text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Attempt" ADD COLUMN "Method" text;--> statement-breakpoint
ALTER TABLE "Order_Attempt" ADD COLUMN "Url" text;--> statement-breakpoint
ALTER TABLE "Order_Attempt" ADD COLUMN "TraceID" text;--> statement-breakpoint
ALTER TABLE "Order_Attempt" ADD COLUMN "ResponseID" text;--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "Tags" jsonb;--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "InputChanged" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "EndedAs" text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "EndedClass" text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "EndedInDoubt" boolean;--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "ErasedAt" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "PurgedAt" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "Order_Process" ADD COLUMN "PausedAt" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "Order_Process" ADD COLUMN "PausedBy" text;--> statement-breakpoint
ALTER TABLE "Order_Process" ADD COLUMN "Reason" text;--> statement-breakpoint
CREATE INDEX "Order_DeadLetter_process" ON "Order_DeadLetter" USING btree ("Process","ID");--> statement-breakpoint
CREATE UNIQUE INDEX "Order_DeadLetter_message" ON "Order_DeadLetter" USING btree ("Process","MessageID");--> statement-breakpoint
CREATE INDEX "Order_Operation_unfinished" ON "Order_Operation" USING btree ("CreatedAt") WHERE "FinishedAt" is null;--> statement-breakpoint
CREATE INDEX "Order_Operation_newest" ON "Order_Operation" USING btree ("CreatedAt","ID");--> statement-breakpoint
CREATE INDEX "Order_Header_ended" ON "Order_Header" USING btree ("Process","EndedAs","EndedClass","EndedInDoubt","CreatedAt","TransactionID","ReplayID") WHERE "EndedAs" is not null and "PurgedAt" is null;--> statement-breakpoint
CREATE INDEX "Order_Header_realm" ON "Order_Header" USING btree ("Realm","CreatedAt","Process","TransactionID","ReplayID") WHERE "Realm" is not null and "PurgedAt" is null;--> statement-breakpoint
CREATE INDEX "Order_Header_purged" ON "Order_Header" USING btree ("PurgedAt") WHERE "PurgedAt" is not null;--> statement-breakpoint
CREATE INDEX "Order_Header_newest" ON "Order_Header" USING btree ("Process","CreatedAt","TransactionID","ReplayID") WHERE "PurgedAt" is null;--> statement-breakpoint
CREATE INDEX "Order_Header_completed" ON "Order_Header" USING btree ("Process","CompletedAt","TransactionID","ReplayID") WHERE "CompletedAt" is not null and "PurgedAt" is null;--> statement-breakpoint
ALTER TABLE "Order_Header" ADD CONSTRAINT "Order_Header_times" CHECK (("LeaseUntil" is null or "LeaseUntil" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("StartedAt" is null or "StartedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("NextAttemptAt" is null or "NextAttemptAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("NextSweepAt" is null or "NextSweepAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("CreatedAt" is null or "CreatedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("UpdatedAt" is null or "UpdatedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("CompletedAt" is null or "CompletedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("ErasedAt" is null or "ErasedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00') and ("PurgedAt" is null or "PurgedAt" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00'));--> statement-breakpoint
-- The audit reads the items of the last hour. Pages that are not summarised count as recent.
ALTER INDEX "Order_Item_recent" SET (autosummarize = on);--> statement-breakpoint
-- "Status" changes with every claim, so no index may contain it. These columns change only when a run ends badly, is
-- resumed or is settled, whichever program or version of this one writes "Status". WHEN is checked before anything is called.
CREATE FUNCTION "Order_Header_end"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW."Status" IN ('Failed', 'Cancelled') THEN
		NEW."EndedAs" := NEW."Status";
		NEW."EndedClass" := coalesce(NEW."ErrorClass", '');
		NEW."EndedInDoubt" := NEW."InDoubt";
	ELSE
		NEW."EndedAs" := NULL;
		NEW."EndedClass" := NULL;
		NEW."EndedInDoubt" := NULL;
	END IF;
	RETURN NEW;
END $$;--> statement-breakpoint
CREATE TRIGGER "Order_Header_ended" BEFORE INSERT OR UPDATE ON "Order_Header"
	FOR EACH ROW WHEN ((NEW."Status" IN ('Failed', 'Cancelled')) <> (NEW."EndedAs" IS NOT NULL)
		OR NEW."EndedInDoubt" <> NEW."InDoubt")
	EXECUTE FUNCTION "Order_Header_end"();--> statement-breakpoint
-- The trigger sets the columns.
UPDATE "Order_Header" SET "EndedAs" = NULL WHERE "Status" IN ('Failed', 'Cancelled');--> statement-breakpoint
CREATE FUNCTION "Order_Header_tag"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO "Order_Tag" ("Name", "Value", "CreatedAt", "Process", "TransactionID", "ReplayID")
	SELECT key, value, NEW."CreatedAt", NEW."Process", NEW."TransactionID", NEW."ReplayID"
	FROM jsonb_each_text(NEW."Tags");
	RETURN NULL;
END $$;--> statement-breakpoint
CREATE TRIGGER "Order_Header_tagged" AFTER INSERT ON "Order_Header"
	FOR EACH ROW WHEN (NEW."Tags" IS NOT NULL) EXECUTE FUNCTION "Order_Header_tag"();--> statement-breakpoint
-- Only a new installation deletes finished runs by default.
INSERT INTO "Order_Installation" ("Name", "Value")
	SELECT 'KeepsByDefault', to_jsonb(EXISTS (SELECT FROM "Order_Header"));
